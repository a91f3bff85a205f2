"""The ``rlc`` command: ``main`` finds the subcommand, whose module is in `commands/`."""
