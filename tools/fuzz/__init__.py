"""What ``rlc`` makes of recipes that nobody would write: ``python -m tools.fuzz --help``."""
