"""The environment ``openreward()``: tasks of an OpenReward server, played in its sessions."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field

from rlc.envs.base import AsyncEpisode, ContractError, EnvError, TaskKey
from rlc.envs.deadlines import waiting
from rlc.envs.group_rewards import require_whole
from rlc.envs.openreward.client import Address, Connection
from rlc.envs.openreward.episode import OpenRewardEpisode, Play
from rlc.envs.openreward.group import ScoredEpisode, ScoredGroup
from rlc.envs.problems.data_sets import Listed
from rlc.envs.tool_chat import ToolChatHistory


@define(eq=False)
class OpenRewardSource:
    """One split of one environment. See :class:`rlc.envs.base.AsyncSource`.

    Every member of a task has a session of its own, and at most ``sessions`` are open at a time.
    A group is opened with one; the others begin when their members make their first move, so a
    large group needs no more slots than there are. ``new_history`` makes the chats of its episodes.
    Where the environment scores whole groups, each member's last turn waits for the others'.
    """

    id: str
    args: Mapping[str, Any]
    new_history: Callable[[], ToolChatHistory]
    _connection: Connection = field(init=False)
    _slots: asyncio.Semaphore = field(init=False)
    _tasks: Listed | None = field(default=None, init=False)
    _scores: bool = field(default=False, init=False)  # whether it scores groups, once it was asked
    _listing: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def __attrs_post_init__(self) -> None:
        """Raises EnvError if the SDK is not installed."""
        if importlib.util.find_spec("openreward") is None:
            raise EnvError("OpenReward is not installed: pip install 'rlc[openreward]'")
        self._connection = Connection(Address.of(self.id, self.args))
        self._slots = asyncio.Semaphore(self.args["sessions"])

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Raises EnvError where a session does not begin, or begins with what cannot be shown."""
        index = await self._index(task)
        if self._scores:
            require_whole(self.id, members, task.size)
        play = await self._begin(index)
        try:
            first = await play.opening(self.args["tools"])
        except BaseException:
            await play.close()
            raise

        async def another() -> Play:
            """The session of another member, which must begin like the first."""
            other = await self._begin(index)
            try:
                if await other.opening(self.args["tools"]) != first:
                    raise ContractError(
                        f"task {index} of `{self.id}` begins differently in each session, so "
                        "there is no group to compare"
                    )
            except BaseException:
                await other.close()
                raise
            return other

        tools = self.args["tools"]
        episodes = [
            OpenRewardEpisode(first, another, tools, play if at == 0 else None)
            for at, _ in enumerate(members)
        ]
        if not self._scores:
            return list(episodes)
        group = ScoredGroup(self.id, task.size, lambda: self._begin(index))
        return [ScoredEpisode(one, group, at) for at, one in enumerate(episodes)]

    async def close(self) -> None:
        await self._connection.close()

    async def _begin(self, index: int) -> Play:
        """A session, as soon as there is a slot."""
        with waiting():
            await self._slots.acquire()
        try:
            session = await self._connection.session(self.args["split"], index)
        except BaseException:
            self._slots.release()
            raise
        return Play(self._connection, session, self._slots)

    async def _index(self, task: TaskKey) -> int:
        async with self._listing:
            if self._tasks is None:
                count = await self._connection.count(self.args["split"])
                self._scores = await self._connection.group_scores()
                self._tasks = task_order(count, self.args["shuffle"], self.args["samples"])
        return int(self._tasks.row(task.order, task.number)["index"])


def task_order(count: int, shuffle: bool, samples: int | None) -> Listed:
    """The numbers of a split's tasks in the order in which they are played, epoch after epoch.

    ``samples`` keeps the first so many: with ``shuffle`` those of one fixed order, so that every
    run and every stage has the same ones. Raises EnvError where there are not so many.
    """
    if not count or (samples or 0) > count:
        raise EnvError(f"the split has {count:,} tasks, and {samples or 1:,} are asked for")
    tasks = Listed([{"index": index} for index in range(count)], shuffle)
    if samples is None:
        return tasks
    return Listed([tasks.row(0, at) for at in range(samples)], shuffle)
