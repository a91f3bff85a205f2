"""Environments in which one model judges the work of another."""
