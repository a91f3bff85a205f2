"""The tokens that a run was trained on, for `rlc show` and its browser: as text, and in colours."""
