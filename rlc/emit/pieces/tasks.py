"""Rows of data as tasks: one prompt, one reply, one reward"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from rlc.data import permutation
from rlc.emit.pieces.job import *
from rlc.emit.pieces.rows import Row
from rlc.seeds import derive_seed


class Problems:
    """Rows, epoch after epoch, each in an order of its own. ``before``: solved ones that a prompt
    shows first."""

    def __init__(
        self,
        name: str,
        rows: Any,
        prompt: Callable[[Row], Any],
        grade: Callable[[str, Row], float],
        shuffle: bool = True,
        before: Sequence[Any] = (),
    ) -> None:
        self.rows: Any = rows
        self.prompt, self.grade = prompt, grade
        self.shuffle, self.before = shuffle, before
        self.order = derive_seed(SEED, "task", STAGE, name, "order")

    async def open(self, number: int, _seed: int, size: int) -> list[Problem]:
        row = self.row(number)
        return [Problem([*self.before, *self.prompt(row)], row, self.grade)] * size

    def row(self, number: int) -> Row:
        epoch, at = divmod(number, len(self.rows))
        at = permutation(self.order, epoch, len(self.rows))[at] if self.shuffle else at
        row: Row = self.rows[at]
        return row


class Endless(Problems):
    """Problems that are made of a seed, on demand."""

    def row(self, number: int) -> Row:
        row: Row = self.rows(derive_seed(self.order, "task", number) if self.shuffle else number)
        return row


@dataclass
class Problem:
    first: Any
    row: Row
    grade: Callable[[str, Row], float]

    async def step(self, action: str) -> tuple[str, float, bool]:
        return "", self.grade(action, self.row), True


def asked(row: Row, field: str, suffix: str = "", cut: bool = False) -> list[dict[str, Any]]:
    """The prompt of a row, a text or messages, without a reply at its end if it is ``cut``."""
    value = row[field]
    given = [{"role": "user", "content": value}] if isinstance(value, str) else value
    made = [{"role": one["role"], "content": one["content"]} for one in given]
    while cut and made[-1]["role"] == "assistant":
        made.pop()
    made[-1]["content"] += suffix
    return made


def solved(rows: Sequence[Row], answer: str, field: str, suffix: str) -> list[dict[str, Any]]:
    """Rows as questions with their answers."""
    replies = [{"role": "assistant", "content": str(row[answer])} for row in rows]
    pairs = zip(rows, replies, strict=True)
    return [message for row, reply in pairs for message in (*asked(row, field, suffix), reply)]


class Own:
    """An environment of one's own, which makes groups of a seed, or of a number."""

    def __init__(self, name: str, source: Any) -> None:
        self.source, self.order = source, derive_seed(SEED, "task", STAGE, name, "order")

    async def open(self, number: int, seed: int, size: int) -> list[OwnEpisode]:
        if hasattr(self.source, "group"):
            return [OwnEpisode(one) for one in self.source.group(seed, size)]
        return [OwnEpisode(one) for one in self.source.numbered(self.order, number, size)]


class OwnEpisode:
    def __init__(self, episode: Any) -> None:
        self.episode, self.first = episode, list(episode.first.messages) or episode.first.text

    async def step(self, action: str) -> tuple[Any, float, bool]:
        seen = self.episode.step(action)
        return list(seen.messages) or seen.text, float(seen.reward or 0.0), bool(seen.done)


def earned(returned: Any, weights: Mapping[str, float]) -> float:
    """What a function of one's own gives: a number, or several by name; process rewards, a list,
    are no part of it."""
    if not isinstance(returned, Mapping):
        return float(returned)
    numbers = {name: x for name, x in returned.items() if not isinstance(x, list | tuple)}
    return fsum(weights.get(name, 1.0) * float(value) for name, value in numbers.items())
