"""Losses and optimiser of the embedded engine."""
