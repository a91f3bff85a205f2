"""Questions with answers to check, and the graders that check them."""
