"""Anthropic's API: messages, and counting their tokens."""
