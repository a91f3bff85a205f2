"""Environments of GEM."""
