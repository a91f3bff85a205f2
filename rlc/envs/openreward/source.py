"""The environment ``openreward()``: tasks of an OpenReward server, played in its sessions."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from attrs import define, field

from rlc.chat import ContractError, EnvError, Observation
from rlc.data import ListedProblems
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.group_rewards import require_whole
from rlc.envs.openreward.client import Connection, ServerAddress, end_session
from rlc.envs.openreward.episode import OpenRewardEpisode, OpenSession
from rlc.envs.openreward.group import ScoredEpisode, scored_group


@define(eq=False)
class OpenRewardSource:
    """One split of one environment. See :class:`rlc.envs.base.AsyncSource`.

    Every member of a task has a session of its own, and at most ``sessions`` are open at a time.
    A group is opened with one session; the others begin when their members make their first move,
    so a large group needs no more slots than there are. If the environment scores whole groups,
    each member's last turn waits for the others'.
    """

    id: str
    args: Mapping[str, Any]
    _connection: Connection = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _tasks: ListedProblems[int] | None = field(default=None, init=False)
    _scores: bool = field(default=False, init=False)  # whether it scores groups; known with tasks
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        """Raise EnvError if the SDK is not installed."""
        if importlib.util.find_spec("openreward") is None:
            raise EnvError("OpenReward is not installed: pip install 'rlc[openreward]'")
        self._connection = Connection(ServerAddress.of(self.id, self.args))
        self._slots = asyncio.Semaphore(self.args["sessions"])

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Raise EnvError if a session does not begin, or begins with what cannot be shown."""
        index = await self._index(task)
        if self._scores:
            require_whole(self.id, members, task.size)
        tools = self.args["tools"]
        session, first = await self._begin_with_opening(index)

        async def another() -> OpenSession:
            """The session of another member, which must begin like the first."""
            other, opening = await self._begin_with_opening(index)
            if opening != first:
                await other.close()
                raise ContractError(
                    f"task {index} of `{self.id}` begins differently in each session, so "
                    "there is no group to compare"
                )
            return other

        episodes: list[AsyncEpisode] = [
            OpenRewardEpisode(first, another, tools, session if at == 0 else None)
            for at in range(len(members))
        ]
        if not self._scores:
            return episodes
        group = scored_group(self.id, task.size, lambda: self._begin(index))
        return [ScoredEpisode(one, group, at) for at, one in enumerate(episodes)]

    async def close(self) -> None:
        await self._connection.close()

    async def _begin_with_opening(self, index: int) -> tuple[OpenSession, Observation]:
        session = await self._begin(index)
        try:
            return session, await session.opening(self.args["tools"])
        except BaseException:
            await session.close()
            raise

    async def _begin(self, index: int) -> OpenSession:
        """Begin a session as soon as there is a slot."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(place(self._slots))
            session = await self._connection.session(self.args["split"], index)
            held.push_async_callback(end_session, session)
            return OpenSession(self._connection, session, held.pop_all())

    async def _index(self, task: TaskKey) -> int:
        async with self._listing:
            if self._tasks is None:
                count = await self._connection.count(self.args["split"])
                self._scores = await self._connection.group_scores()
                self._tasks = task_order(count, self.args["shuffle"], self.args["samples"])
        return self._tasks.row(task.order, task.number)


def task_order(count: int, shuffle: bool, samples: int | None) -> ListedProblems[int]:
    """The numbers of a split's tasks in the order in which they are played, epoch after epoch.

    ``samples`` keeps that many: the first, or with ``shuffle`` those of one fixed order, so that
    every run and every stage has the same ones. Raise EnvError if there are fewer.
    """
    if not count or (samples or 0) > count:
        raise EnvError(f"the split has {count:,} tasks, and {samples or 1:,} are asked for")
    return ListedProblems(range(count), shuffle).first(samples)
