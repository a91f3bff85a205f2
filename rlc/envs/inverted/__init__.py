"""Environments that own their loop, and ask for a reply whenever they want one."""
