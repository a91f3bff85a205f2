"""The groups that a step plays: planned ones, or rounds of them; handed on whole, or in parts.

The first groups of a batch are known when its step begins. What follows them, replacements or
further rounds, depends on all of them together: so it begins once they are over, and does not
depend on which of them is over first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from math import ceil
from typing import Any, Protocol

from attrs import define, evolve, field

from rlc.envs import all_of
from rlc.plan import BatchPlan
from rlc.runtime.concurrency import cancel_all
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.player import Replies
from rlc.runtime.rollouts.tasks import Task

Group = list[Rollout]
Play = Callable[[Task], Coroutine[Any, Any, Group]]


class Batch(Protocol):
    """What a step plays: ``tasks`` at first, and what follows."""

    tasks: Sequence[Task]

    async def group(self, task: Task) -> Group:
        """Play one of the tasks."""

    def waits(self, group: Group, /) -> bool:
        """Return whether only all groups together decide what becomes of this one."""

    async def rest(self, groups: Iterable[tuple[Task, Group]]) -> list[Rollout]:
        """Return the rollouts of these groups, all or those that wait, and of what follows. All
        tasks are over."""


async def whole(batch: Batch) -> list[Rollout]:
    """Play a batch, and return its rollouts."""
    groups = await all_of(map(batch.group, batch.tasks))
    return await batch.rest(zip(batch.tasks, groups, strict=True))


@define(eq=False)
class PlannedGroups:
    """As many groups as planned. Those whose members all have the same reward are replaced.

    Such a group is marked as replaced and another task of its environment is played, as long as
    there are numbers of ``spares``. A group that failed as a whole is not replaced.
    """

    tasks: Sequence[Task]
    play: Play
    spare: Callable[[str, int], Task]
    spares: Sequence[int]
    _unused: Iterator[int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._unused = iter(self.spares)

    async def group(self, task: Task) -> Group:
        return await self.play(task)

    def waits(self, group: Group, /) -> bool:
        return bool(self.spares) and is_constant(group)

    async def rest(self, groups: Iterable[tuple[Task, Group]]) -> list[Rollout]:
        rollouts, due = list[Rollout](), list(groups)
        while due:
            fresh = list[Task]()
            for task, group in due:
                if is_constant(group) and (number := next(self._unused, None)) is not None:
                    fresh.append(self.spare(task.env.plan.name, number))
                    group = [evolve(member, replaced=True) for member in group]
                rollouts.extend(group)
            due = list(zip(fresh, await all_of(map(self.play, fresh)), strict=True))
        return rollouts


def is_constant(group: Iterable[Rollout]) -> bool:
    """Return whether the members of a group have the same reward, in each role."""
    rewards = {(rollout.role, rollout.reward) for rollout in group if rollout.credit}
    return bool(rewards) and len(rewards) == len({role for role, _ in rewards})


def replaced_groups(rollouts: Iterable[Rollout], envs: Iterable[str]) -> dict[str, float]:
    """Return how many groups of each environment were replaced."""
    groups = {rollout.group for rollout in rollouts if rollout.replaced}
    return {f"resampled/{env}": float(sum(name == env for name, _ in groups)) for env in envs}


@define(eq=False)
class TurnRounds:
    """Rounds of parallel episodes until there are enough turns, or none at all, or too many replies
    are lost; a task without any counts as a reply.

    A round begins when the one before is over. That none follows is known as soon as the episodes
    that are over have enough turns, while others of the last round are still played: ``last`` is
    called then. ``lost`` is told of turns and of lost replies.
    """

    plan: BatchPlan
    tasks: Sequence[Task]  # of the first round
    play: Play
    more: Callable[[], Coroutine[Any, Any, Sequence[Task]]]  # tasks of another
    asked: Replies
    last: Callable[[], None]
    lost: Callable[[int, int], None]
    _begun: int = field(init=False)  # episodes
    _turns: int = field(default=0, init=False)
    _is_last: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._begun = len(self.tasks)

    async def group(self, task: Task) -> Group:
        members = await self.play(task)
        self._turns += sum(len(rollout.turns) for rollout in members)
        if self._turns >= self.plan.count:
            self._end()
        return members

    def waits(self, _: Group, /) -> bool:
        return False

    async def rest(self, groups: Iterable[tuple[Task, Group]]) -> list[Rollout]:
        rollouts, before = [rollout for _, group in groups for rollout in group], 0
        while not self._is_last:
            lost = max(self.asked.number, self._begun) - self._turns
            if self._turns == before:  # nor would the next round have any
                self._end()
            elif lost >= self.plan.most_lost:
                self.lost(self._turns, lost)
                self._end()
            else:
                before, tasks = self._turns, await self.more()
                self._begun += len(tasks)
                for group in await all_of(map(self.group, tasks)):
                    rollouts.extend(group)
        return rollouts

    def _end(self) -> None:
        if not self._is_last:
            self._is_last = True
            self.last()


@define(eq=False)
class StreamedGroups:
    """The groups of a step, handed on in parts while others are still played.

    In a ``fixed`` order a part is the same groups each time. Otherwise it is those that are in, as
    soon as they are its share of all and no gradient is being computed, or the last group is in:
    groups that come in while a gradient is computed are trained on together. Then there may be
    fewer parts than planned; the remaining ones are empty.

    Groups that wait for all others are held back until all are in, and come last, with what follows
    them. ``gradients``: a gradient is taken of each part.
    """

    batch: Batch
    parts: int
    fixed: bool
    gradients: bool
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _playing: set[int] = field(factory=set, init=False)
    _ready: dict[int, Group] = field(factory=dict, init=False)
    _waiting: dict[int, Group] = field(factory=dict, init=False)
    _given: int = field(default=0, init=False)  # parts
    _failure: BaseException | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def start(self) -> None:
        tasks = enumerate(self.batch.tasks)
        self._tasks = [asyncio.create_task(self._play(number, task)) for number, task in tasks]
        self._playing = set(range(len(self._tasks)))

    async def _play(self, number: int, task: Task) -> None:
        try:
            rollouts = await self.batch.group(task)
        except Exception as error:
            self._failure = self._failure or error
        else:
            (self._waiting if self.batch.waits(rollouts) else self._ready)[number] = rollouts
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
                due = sorted(n for n in self._ready if not self.fixed or n < self._end)
                part = [self._ready.pop(number) for number in due]
                # The rest comes in the last part, or once all others are given in any order.
                if self._given == self.parts or not (self.fixed or part or self._playing):
                    waiting, self._waiting = sorted(self._waiting.items()), {}
                    groups = [(self.batch.tasks[number], group) for number, group in waiting]
                    part.append(await self.batch.rest(groups))
            except BaseException:
                await cancel_all(self._tasks)
                raise
            self._training = self.gradients and any(part)
            return [rollout for group in part for rollout in group]

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

    def gradients_submitted(self, outputs: Sequence[asyncio.Future[Any]]) -> None:
        """Record the gradients of the last part; none if it had nothing to train on."""

        def trained(_: Any = None) -> None:
            self._training = False
            self._changed.set()

        if outputs:
            asyncio.gather(*outputs, return_exceptions=True).add_done_callback(trained)
        else:
            trained()
