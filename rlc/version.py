"""The version of rlc."""

__version__ = "0.1.0"
