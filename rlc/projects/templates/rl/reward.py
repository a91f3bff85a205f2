"""The reward of recipe.rl."""

from typing import Any


def share(reply: str, row: dict[str, Any]) -> float:
    """How much of the reply is the letter that the row asks for, from 0 to 1.

    A reply of a single letter is worth nothing: what a reward leaves open, a model finds.
    """
    word = reply.strip().lower()
    return word.count(row["letter"]) / len(word) if len(word) > 1 else 0.0
