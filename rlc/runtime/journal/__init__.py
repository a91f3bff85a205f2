"""What a run writes down: journal, checkpoints, metrics, and the run folder."""
