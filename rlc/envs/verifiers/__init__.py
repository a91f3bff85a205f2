"""Environments and tasksets of verifiers."""
