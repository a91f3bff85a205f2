"""Environments of Prime Intellect's verifiers."""
