"""Tokens, sizes, cost and duration of a plan."""
