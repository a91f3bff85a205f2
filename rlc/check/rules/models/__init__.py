"""Rules on models: those that are ``trained``, and those that are ``asked``."""
