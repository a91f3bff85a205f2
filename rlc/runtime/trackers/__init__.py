"""Experiment trackers that metrics and episodes are sent to."""
