"""Tinker through its official SDK: the hosted service, or any server that speaks its API."""
