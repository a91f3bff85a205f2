"""Tasks that are passed over, or replaced, because they teach nothing"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from rlc.emit.pieces.job import *
from rlc.emit.pieces.records import Env, Episode
from rlc.emit.pieces.rollouts import Player
from rlc.seeds import derive_seed

SOLVED = 1.0  # the reward from which on a task counts as solved
SPARES = 1_000_000_000  # the first number of a task that replaces another


class Curriculum:
    """Tasks but those of which too few episodes, or too many, earned 1 when they were last played;
    of these a share of ``explore`` is played all the same."""

    def __init__(
        self, name: str, tasks: Any, hopeless: float, solved: float, explore: float
    ) -> None:
        self.tasks, self.bounds, self.explore = tasks, (hopeless, solved), explore
        self.seed = derive_seed(SEED, "task", STAGE, name)
        self.position, self.rows, self.shares = 0, dict[int, int](), dict[int, float]()

    async def open(self, number: int, seed: int, size: int) -> Any:
        if number not in self.rows:
            place = self.following(number if number >= SPARES else self.position)
            if number < SPARES:
                self.position = place + 1
            self.rows[number] = place % len(self.tasks.rows)
        return await self.tasks.open(self.rows[number], seed, size)

    def following(self, position: int) -> int:
        """The first position from there on whose task is played, or itself if none is."""
        (low, high), count = self.bounds, len(self.tasks.rows)
        for at in range(position, position + count):
            share = self.shares.get(at % count)
            drawn = random.Random(derive_seed(self.seed, "curriculum", at)).random()
            if share is None or low < share < high or drawn < self.explore:
                return at
        return position

    def learn(self, episodes: Sequence[Episode]) -> None:
        """Remember how well tasks were solved."""
        groups = dict[int, list[bool]]()
        for one in episodes:
            groups.setdefault(one.task, []).append(one.reward >= SOLVED)
        self.shares |= {self.rows[task]: fmean(group) for task, group in groups.items()}
        self.rows.clear()


async def replaced(
    player: Player, step: int, tasks: Sequence[tuple[Env, int]], groups: Sequence[list[Episode]]
) -> tuple[list[Episode], list[Episode]]:
    """The episodes of a step, and all that were played: other tasks, but at most so many, stand in
    the place of those whose episodes had the same reward."""
    spares = iter(range((step - 1) * RESAMPLE, step * RESAMPLE))
    left, everything = list[Episode](), list[Episode]()
    while tasks:
        fresh = []
        for (env, _), group in zip(tasks, groups, strict=True):
            played = [one for one in group if one.turns]
            alike = len({one.reward for one in played}) == 1
            everything += played
            if alike and (spare := next(spares, None)) is not None:
                fresh.append((env, SPARES + spare))
            else:
                left += played
        tasks, groups = fresh, await asyncio.gather(*(player.play(*task) for task in fresh))
    return left, everything
