"""A run on the terminal while it goes on: its state, drawn to fit the screen, or a line a step."""
