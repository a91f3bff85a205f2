"""Environments that judges reward: models by a rubric, functions of the user's own."""
