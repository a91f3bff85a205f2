"""What is computed, as formulas: advantages, losses, rewards."""
