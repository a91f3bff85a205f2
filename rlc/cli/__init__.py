"""The ``rlc`` command.

`main` finds the subcommand, whose module is in `commands/`, and prints errors. Commands share
`options` (those that decide a plan), `paths` (what a path on the command line stands for),
`output` (findings, errors, differences) and `progress` (a run on the terminal).
"""
