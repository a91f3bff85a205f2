"""Sampling with the embedded engine."""
