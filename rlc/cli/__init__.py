"""The ``rlc`` command.

`main` finds the subcommand, whose module is in `commands/`, and prints errors. Commands share
`options` (those that decide a plan), `output` (findings, errors, differences), `transcripts`
(episodes as lines of text) and `live/` (a run on the terminal).
"""
