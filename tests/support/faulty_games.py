"""Games that go wrong in a chosen way, blocking and not; importable from a recipe."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from attrs import define, field

from rlc.chat.turns import Action, Observation
from rlc.envs.base import AsyncEpisode, Episode, TaskKey

RELEASE = threading.Event()  # lets steps that hang come back, at the end of a test


def _raise(error: BaseException) -> Any:
    raise error


# What the second step of an episode gives, or does, by the name of the fault.
FAULTS: dict[str, Callable[[], Any]] = {
    "none": lambda: Observation("fine", 1.0, True),
    "raises": lambda: _raise(OSError("the game crashed\nand more")),
    "stops iterating": lambda: _raise(StopIteration()),
    "exits": lambda: _raise(SystemExit(1)),
    "cancels": lambda: _raise(asyncio.CancelledError()),
    "NaN reward": lambda: Observation("", math.nan, True),
    "infinite reward": lambda: Observation("", -math.inf, True),
    "array reward": lambda: Observation("", np.array([1.0, 2.0]), True),  # type: ignore[arg-type]
    "text reward": lambda: Observation("", "1.0", True),  # type: ignore[arg-type]
    "no text": lambda: Observation(None, 1.0, True),  # type: ignore[arg-type]
    "bytes": lambda: Observation(b"seen", 1.0, True),  # type: ignore[arg-type]
    "NaN metric": lambda: Observation("", 1.0, True, {"correct": math.nan}),
    "a tuple": lambda: ("text", 1.0, True, False, {}),
    "nothing": lambda: None,
    "hangs": lambda: RELEASE.wait(30),
    "endless": lambda: Observation("on"),
    "dies": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "float32": lambda: Observation("", np.float32(1.0), True),  # type: ignore[arg-type]
    "truth value": lambda: Observation("", True, np.bool_(True)),  # type: ignore[arg-type]
    "whole number": lambda: Observation("", np.int64(1), True),  # type: ignore[arg-type]
}


@define(eq=False)
class Game:
    """Its first step is fine, the others do what the fault says, as often as ``left`` says."""

    fault: str
    left: list[int]
    first: Observation = field(factory=lambda: Observation("go"))
    closed: int = 0
    turns: int = 0

    def step(self, action: str) -> Any:
        self.turns += 1
        if self.turns == 1:
            return Observation("again", 0.0)
        if self.left[0] > 0:
            self.left[0] -= 1
            return FAULTS[self.fault]()
        return FAULTS["none"]()

    def close(self) -> None:
        self.closed += 1


@define(eq=False)
class AsyncGame:
    """The same game, without blocking."""

    game: Game

    @property
    def first(self) -> Observation:
        return self.game.first

    async def play(self, action: Action) -> Any:
        if self.game.fault == "hangs" and self.game.turns == 1 and self.game.left[0] > 0:
            self.game.left[0] -= 1
            await asyncio.Event().wait()
        return self.game.step(action.text)

    async def close(self) -> None:
        self.game.close()


@define(eq=False)
class Games:
    """The member ``faulty`` of each group goes wrong, ``times`` times in all; None: every one."""

    fault: str = "none"
    faulty: int | None = 1
    times: int = 10**6
    made: list[Game] = field(factory=list)
    left: list[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.left = [self.times]

    def group(self, seed: int, size: int) -> list[Episode]:
        games = [
            Game(self.fault if self.faulty in (None, member) else "none", self.left)
            for member in range(size)
        ]
        self.made += games
        return list(games)


@define(eq=False)
class AsyncGames:
    games: Games

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        games = self.games.group(task.seed, task.size)
        return [AsyncGame(games[member]) for member in members]  # type: ignore[arg-type]

    async def close(self) -> None:
        """There is nothing to let go of."""


def blocking(fault: str = "none", faulty: int | None = None) -> Games:
    """A source for recipes."""
    return Games(fault, faulty)


def awaiting(fault: str = "none", faulty: int | None = None) -> AsyncGames:
    """The same, without blocking."""
    return AsyncGames(Games(fault, faulty))
