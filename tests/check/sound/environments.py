"""An environment, an executor and rewards of one's own, for the recipes beside this."""

from __future__ import annotations

import random
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

from rlc.envs.base import Observation


class Count:
    """How many letters are there?"""

    def __init__(self, letters: int) -> None:
        self.letters = letters
        self.first = Observation(f"How many letters has {'x' * letters}?")

    def step(self, action: str) -> Observation:
        return Observation("", reward=float(action.strip() == str(self.letters)), done=True)


class Counts:
    def __init__(self, sizes: list[int], seed: int) -> None:
        self.sizes, self.seed = sizes, seed

    def group(self, seed: int, size: int) -> list[Count]:
        letters = random.Random(self.seed + seed).choice(self.sizes)
        return [Count(letters) for _ in range(size)]


def make(sizes: list[int], seed: int) -> Counts:
    return Counts(sizes, seed)


def executor() -> Executor:
    return ThreadPoolExecutor(2)


def digits(reply: str, row: dict[str, Any]) -> float:
    """The share of a reply that is digits, if its prompt has one at all."""
    asks = any(char.isdigit() for char in str(row["prompt"]))
    return sum(char.isdigit() for char in reply) / max(1, len(reply)) if asks else 0.0


def short(reply: str, row: dict[str, Any]) -> float:
    return 1.0 / (1 + len(reply))
