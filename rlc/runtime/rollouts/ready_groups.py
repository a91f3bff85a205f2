"""The groups of a step in the order in which they come in, for a gradient taken in parts.

A part is taken as soon as its share of the groups is ready and no gradient is being computed, or
the last group is ready. So each gradient is as large as it can be without waiting: groups that
come in while another gradient is computed are trained on together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from math import ceil
from typing import Any

from attrs import define, field

from rlc.runtime.records import Rollout
from rlc.runtime.updates.optimizer import PendingGradients

Playing = Coroutine[Any, Any, list[Rollout]]


@define(eq=False)
class ReadyGroups:
    """The groups of one step.

    Each part but the last has at least ``share`` groups, so there may be fewer parts than planned;
    the remaining ones are empty.
    """

    share: int
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _playing: int = field(default=0, init=False)
    _ready: list[tuple[int, list[Rollout]]] = field(factory=list, init=False)
    _failure: BaseException | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def start(self, groups: Iterable[Playing]) -> None:
        self._tasks = [
            asyncio.create_task(self._play(number, group)) for number, group in enumerate(groups)
        ]
        self._playing = len(self._tasks)

    async def _play(self, number: int, group: Playing) -> None:
        try:
            rollouts = await group
        except Exception as error:
            self._failure = self._failure or error
        else:
            self._ready.append((number, rollouts))
        self._playing -= 1
        self._changed.set()

    async def part(self) -> list[Rollout]:
        """Return the rollouts of the next part, group by group; raise what playing one raised."""
        async with self._lock:
            try:
                while not self._part_is_ready():
                    self._changed.clear()
                    await self._changed.wait()
            except BaseException:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                raise
            taken, self._ready = sorted(self._ready, key=lambda group: group[0]), []
            self._training = bool(taken)
            return [rollout for _, rollouts in taken for rollout in rollouts]

    def _part_is_ready(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return not self._playing or (len(self._ready) >= self.share and not self._training)

    def gradients_submitted(self, gradients: PendingGradients) -> None:
        """Record that the last part is with the service, or had nothing to train on."""

        def trained(_: Any = None) -> None:
            self._training = False
            self._changed.set()

        outputs = [gradient.output for gradient in gradients.submitted]
        if outputs:
            asyncio.gather(*outputs, return_exceptions=True).add_done_callback(trained)
        else:
            trained()


def smallest_part(groups: int, parts: int) -> int:
    """Return how many groups each part but the last has at least."""
    return max(1, ceil(groups / parts))
