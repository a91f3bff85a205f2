"""Numbers as pictures: curves, bars on a line of time, graphs; pure functions of what was read."""
