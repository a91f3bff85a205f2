"""``python -m rlc``: the command, where the folder of the console script is not on the path."""

from rlc.cli.main import entry

entry()
