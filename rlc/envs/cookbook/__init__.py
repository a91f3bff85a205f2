"""Data sets of tinker-cookbook as environments: ``cookbook("module:Builder")``."""
