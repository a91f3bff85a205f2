"""Functions of the user's own: called, and tried on generated samples of what they are given."""
