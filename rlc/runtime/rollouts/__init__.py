"""Episodes: which tasks are played, and how."""
