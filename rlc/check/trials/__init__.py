"""Sweeps, and what is claimed of them."""
