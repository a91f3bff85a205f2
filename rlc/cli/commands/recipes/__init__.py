"""Commands that read and write recipes, and run nothing."""
