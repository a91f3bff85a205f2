"""Environments of GEM: ``gem("game:Sudoku-v0-easy")``.

Read ``source`` first: it makes groups of episodes. ``tools`` lets the model run code and search
between turns; ``oracles`` play some of the games for demonstrations.
"""
