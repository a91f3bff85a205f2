"""A game of several turns whose moves take time: it waits, as a web service does, and computes."""

from __future__ import annotations

import random
import time
from hashlib import blake2b

from attrs import define, field, frozen

from rlc.chat.turns import Observation


def waits(number: int, member: int, turns: int, median: float) -> list[float]:
    """The seconds that the moves of an episode wait: heavy-tailed, and known beforehand."""
    rng = random.Random(f"{number} {member}")
    return [median * rng.lognormvariate(0, 1) for _ in range(turns)]


@define
class Waiting:
    """An episode; every reply is as good as another."""

    waits: list[float]
    rounds: int  # of hashing, for each move
    first: Observation = field(factory=lambda: Observation("Say 0, 1 or 2."))
    turn: int = 0

    def step(self, action: str) -> Observation:
        time.sleep(self.waits[self.turn])
        digest = action.encode()
        for _ in range(self.rounds):
            digest = blake2b(digest).digest()
        self.turn += 1
        done = self.turn == len(self.waits)
        return Observation(f"That was turn {self.turn}. Again?", float(digest[0] % 2), done)


@frozen
class Source:
    turns: int
    median: float
    rounds: int

    def numbered(self, order: int, number: int, size: int) -> list[Waiting]:  # noqa: ARG002
        return [
            Waiting(waits(number, member, self.turns, self.median), self.rounds)
            for member in range(size)
        ]


def make(turns: int, median: float, rounds: int) -> Source:
    return Source(turns, median, rounds)
