"""Agents: programs that own their loop, and ask the model at an address of their own."""
