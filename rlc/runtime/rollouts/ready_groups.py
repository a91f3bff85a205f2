"""The groups of a step in the order in which they come in, for a gradient that is taken in parts.

A part is taken once its share of the groups is there and no gradient is under way, or the last
group is in. So each gradient is as large as it can be without a wait: what comes in while another
is computed goes together, and once all is there the service has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from math import ceil
from typing import Any

from attrs import define, field

from rlc.runtime.records import Rollout
from rlc.runtime.updates.optimizer import PendingGradients

Playing = Coroutine[Any, Any, list[Rollout]]


@define(eq=False)
class ReadyGroups:
    """The groups of one step. ``share`` is how many of them a part has at the least, but for the
    last: so there may be fewer parts than planned, and those left over are empty."""

    share: int
    _groups: list[asyncio.Task[None]] = field(factory=list, init=False)
    _coming: int = field(default=0, init=False)
    _here: list[tuple[int, list[Rollout]]] = field(factory=list, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)
    _news: asyncio.Event = field(factory=asyncio.Event, init=False)
    _turn: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def start(self, groups: Iterable[Playing]) -> None:
        """Play the groups side by side."""
        self._groups = [
            asyncio.create_task(self._play(number, group)) for number, group in enumerate(groups)
        ]
        self._coming = len(self._groups)

    async def part(self) -> list[Rollout]:
        """The rollouts of the next part, group by group. Raises what playing one raised."""
        async with self._turn:
            try:
                while not self._is_ready():
                    self._news.clear()
                    await self._news.wait()
            except BaseException:
                await self._give_up()
                raise
            taken, self._here = sorted(self._here, key=lambda group: group[0]), []
            self._training = bool(taken)
            return [rollout for _, rollouts in taken for rollout in rollouts]

    def train(self, gradients: PendingGradients) -> None:
        """The part that was last taken is with the service, or has nothing to train on."""
        outputs = [gradient.output for gradient in gradients.submitted]
        if outputs:
            asyncio.gather(*outputs, return_exceptions=True).add_done_callback(self._trained)
        else:
            self._trained()

    async def _play(self, number: int, group: Playing) -> None:
        try:
            rollouts = await group
        except Exception as error:
            self._failure = self._failure or error
        else:
            self._here.append((number, rollouts))
        self._coming -= 1
        self._news.set()

    def _is_ready(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return not self._coming or (len(self._here) >= self.share and not self._training)

    def _trained(self, _: Any = None) -> None:
        self._training = False
        self._news.set()

    async def _give_up(self) -> None:
        for group in self._groups:
            group.cancel()
        await asyncio.gather(*self._groups, return_exceptions=True)


def share_of(groups: Sequence[Any], parts: int) -> int:
    """How many groups a part has at the least: the last of them is left with no more."""
    return max(1, ceil(len(groups) / parts))
