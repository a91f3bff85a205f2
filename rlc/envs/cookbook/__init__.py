"""Data sets of tinker-cookbook: ``cookbook("module:Builder")``."""
