"""The scripts that rebuild the tiny model (`python -m tools.tiny.build`)."""
