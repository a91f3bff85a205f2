"""Environments whose calls block, kept off the event loop: ``workers()`` in a recipe."""
