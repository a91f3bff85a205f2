"""Environments of GEM: ``gem("game:Sudoku-v0-easy")``."""
