"""Sweeps as they run: many runs of one job under one budget, compared.

To read it: `run`, which goes through the trials; `search` and `halving`, which choose them, with
Optuna behind; `shared`, for stages that several trials have in common; `journal` and `folder`, what
is written down; `results`, what came out.
"""
