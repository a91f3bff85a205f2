"""Episodes: which tasks are played, how, and with which tokens."""
