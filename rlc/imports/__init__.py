"""Recipes from what people have: command lines and configurations of other trainers."""
