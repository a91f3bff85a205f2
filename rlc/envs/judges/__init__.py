"""Environments in which a model judges the work of another: ``solver_judge()``."""
