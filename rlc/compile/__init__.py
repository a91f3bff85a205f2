"""From a recipe to a plan."""
