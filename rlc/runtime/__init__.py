"""The runtime: executes a plan on a training service."""
