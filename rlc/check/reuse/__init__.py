"""Reuse: declarations with parameters, and blocks that amend others.

It is done on the syntax tree, before anything is evaluated: a use of a declaration with parameters
is a copy of it with the arguments put in, an amended block one with other fields. What is put in
keeps its place, and how it came there.
"""
