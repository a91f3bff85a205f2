"""Expressions of recipes, from the syntax tree to programs.

``lower`` makes the nodes of a program and remembers the text of each, ``losses`` reads a `loss`
block, ``findings`` says what is wrong with a program that can be computed.
"""
