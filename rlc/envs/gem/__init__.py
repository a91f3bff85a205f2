"""Environments of GEM: ``gem("game:Sudoku-v0-easy")``.

Read ``source`` first: it makes groups of episodes. ``global_rng`` and ``math`` are what it needs to
run them side by side; ``tools`` lets the model run code (``sandbox``) and search between turns;
``oracles`` play some of the games for demonstrations.
"""
