"""What earlier runs have finished, and a new run takes; and what nothing needs any more."""
