"""Rules on rewards: graders, judges, and what shapes a reward."""
