"""What was found out about a recipe, kept beside it, and known by content."""
