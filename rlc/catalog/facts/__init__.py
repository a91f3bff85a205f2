"""Dated facts: models, prices, and the snapshot of GEM's environments."""
