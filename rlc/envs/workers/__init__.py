"""Blocking environments, run in threads, processes or an executor."""
