"""Environments that a recipe names in Python: see :mod:`rlc.envs.python.source`."""
