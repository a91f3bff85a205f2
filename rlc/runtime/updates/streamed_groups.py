"""The groups of a step, handed on in parts while others are still played.

In a ``fixed`` order a part is the same groups each time. Otherwise it is those that are in, taken
as soon as they are its share of all and no gradient is being computed, or the last group is in. So
each gradient is as large as it can be without waiting: groups that come in while another gradient
is computed are trained on together.

Which groups of equals are replaced, and by which tasks, depends on all groups of a step. So they
are held back until all are in, and come last, with those that replace them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from math import ceil
from typing import Any

from attrs import define, field

from rlc.runtime.records import Rollout
from rlc.runtime.updates.optimizer import PendingGradients

Group = list[Rollout]


@define(eq=False)
class StreamedGroups:
    """The groups of one step.

    In the order of arrival each part but the last has at least its share of the groups, so there
    may be fewer parts than planned; the remaining ones are empty.

    ``gradients``: whether a gradient is taken of each part; else nothing is waited for but groups.
    ``held`` says which groups are held back, and ``replaced`` is called with their numbers and
    rollouts once all groups are in.
    """

    parts: int
    fixed: bool
    gradients: bool
    held: Callable[[Group], bool]
    replaced: Callable[[Sequence[int], Sequence[Group]], Awaitable[list[Rollout]]]
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _playing: set[int] = field(factory=set, init=False)
    _ready: dict[int, Group] = field(factory=dict, init=False)
    _held: dict[int, Group] = field(factory=dict, init=False)
    _given: int = field(default=0, init=False)  # parts
    _failure: BaseException | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def start(self, groups: Iterable[Coroutine[Any, Any, Group]]) -> None:
        self._tasks = [
            asyncio.create_task(self._play(number, group)) for number, group in enumerate(groups)
        ]
        self._playing = set(range(len(self._tasks)))

    async def _play(self, number: int, group: Coroutine[Any, Any, Group]) -> None:
        try:
            rollouts = await group
        except Exception as error:
            self._failure = self._failure or error
        else:
            (self._held if self.held(rollouts) else self._ready)[number] = rollouts
        self._playing.discard(number)
        self._changed.set()

    async def part(self) -> list[Rollout]:
        """Return the rollouts of the next part, group by group; raise what playing one raised."""
        async with self._lock:
            self._given += 1
            try:
                while not self._part_is_ready():
                    self._changed.clear()
                    await self._changed.wait()
                taken = [self._ready.pop(number) for number in self._numbers()]
                if self._held and self._nothing_else(taken):
                    equals, self._held = dict(sorted(self._held.items())), {}
                    taken.append(await self.replaced(list(equals), list(equals.values())))
            except BaseException:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                raise
            self._training = self.gradients and bool(taken)
            return [rollout for group in taken for rollout in group]

    @property
    def _end(self) -> int:
        """The number of groups in this part and those before it, in a fixed order."""
        return len(self._tasks) * self._given // self.parts

    def _part_is_ready(self) -> bool:
        if self._failure is not None:
            raise self._failure
        if self.fixed:
            return min(self._playing, default=self._end) >= self._end
        share = max(1, ceil(len(self._tasks) / self.parts))
        return not self._playing or (len(self._ready) >= share and not self._training)

    def _numbers(self) -> list[int]:
        return sorted(n for n in self._ready if not self.fixed or n < self._end)

    def _nothing_else(self, taken: Sequence[Group]) -> bool:
        """Whether the groups that were held back are due: in the last part, or as soon as all
        others are given, if the order is not fixed."""
        return self._given == self.parts or not (self.fixed or taken or self._playing)

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
