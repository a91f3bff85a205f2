"""Scripts that make what the package ships: the tiny model, and the snapshot of GEM."""
