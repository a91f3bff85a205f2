"""Environments of tinker-cookbook."""
