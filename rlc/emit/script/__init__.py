"""Plans as one Python program each, put together from the functions of `rlc.emit.pieces`."""
