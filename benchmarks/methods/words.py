"""Rewards of the experiments: what judges are to say, known exactly, and what says nothing."""

from __future__ import annotations

from random import Random
from typing import Any


def ys(reply: str, row: dict[str, Any]) -> float:  # noqa: ARG001
    """How many y a reply has, of which three are enough, as a share."""
    return min(reply.count("y"), 3) / 3


def right(reply: str, row: dict[str, Any]) -> float:
    """The share of letters that are in their places; 1 if all is right."""
    given, asked = reply.removeprefix("\\boxed{").removesuffix("}"), row["word"][::-1]
    places = zip(given, asked, strict=False)
    return float(sum(one == other for one, other in places) / max(len(given), len(asked)))


def coin(reply: str, row: dict[str, Any]) -> float:
    """Drawn, for each reply to each prompt once."""
    return Random(f"{row['prompt']} {reply}").random()
