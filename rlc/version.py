"""The version of rlc, and the oldest Python that it runs on."""

__version__ = "0.1.0"
PYTHON = (3, 11)
