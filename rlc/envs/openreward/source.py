"""The environment ``openreward()``: tasks of an OpenReward server, played in its sessions."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from difflib import get_close_matches
from typing import Any

from attrs import define, field

from rlc.chat import ContractError, EnvError, Observation
from rlc.data import ListedProblems
from rlc.envs.base import AsyncEpisode, TaskKey
from rlc.envs.deadlines import place
from rlc.envs.group_rewards import GroupRewards, require_whole
from rlc.envs.openreward.client import KEY, Connection, ServerAddress, end_session
from rlc.envs.openreward.episode import OpenRewardEpisode, OpenSession, ScoredEpisode
from rlc.plan import EnvPlan


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
    _scores: bool = field(default=False, init=False)  # whole groups; known with the tasks
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
            """Begin the session of another member, which must begin like the first."""
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

        async def scores(said: Sequence[list[Any]]) -> list[float]:
            scoring = await self._begin(index)
            try:
                return [float(score.reward) for score in await scoring.scored(said)]
            finally:
                await scoring.close()

        group = GroupRewards(self.id, task.size, scores)
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
        async with AsyncExitStack() as held:
            await held.enter_async_context(place(self._slots))
            session = await self._connection.session(self.args["split"], index)
            held.push_async_callback(end_session, session)
            return OpenSession(self._connection, session, held.pop_all())

    async def _index(self, task: TaskKey) -> int:
        async with self._listing:
            if self._tasks is None:
                count = await self._connection.count(self.args["split"])
                self._scores = await self._connection.scores_groups()
                self._tasks = task_order(count, self.args["shuffle"], self.args["samples"])
        return self._tasks.row(task.order, task.number)


def task_order(count: int, shuffle: bool, samples: int | None) -> ListedProblems[int]:
    """Return the numbers of a split's tasks in the order in which they are played; ``samples`` as
    of :meth:`rlc.data.problems.ListedProblems.first`. Raise EnvError if there are fewer."""
    if not count or (samples or 0) > count:
        raise EnvError(f"the split has {count:,} tasks, and {samples or 1:,} are asked for")
    return ListedProblems(range(count), shuffle).first(samples)


def openreward_problems(envs: Sequence[EnvPlan]) -> list[str]:
    """Return a sentence for each thing that is wrong. Blocks, also within an event loop."""

    async def ask_all() -> list[str | None]:
        return await asyncio.gather(*map(_problem, envs))

    with ThreadPoolExecutor(max_workers=1) as pool:
        found = pool.submit(asyncio.run, ask_all()).result()
    return list(dict.fromkeys(filter(None, found)))


async def _problem(env: EnvPlan) -> str | None:
    """Return the first thing that is wrong with an environment, as its server says."""
    address = ServerAddress.of(env.id, env.args)
    if missing := address.missing():
        return f"`{env.name}` needs {', '.join(missing)} in the environment, and it is not set"
    connection, split = Connection(address), env.args["split"]
    try:
        if split not in (splits := await connection.splits()):
            raise EnvError(f"it has no split {_unknown(split, splits)}")
        task_order(await connection.count(split), env.args["shuffle"], env.args["samples"])
        given = {"api_key", KEY.lower(), *(name.lower() for name in env.args["secrets"])}
        required = await connection.required_secrets()
        if missing := [name for name in required if name.lower() not in given]:
            quoted = ", ".join(f'"{name}"' for name in missing)
            raise EnvError(f"it asks for secrets: `secrets = [{quoted}]`")
        if env.args["tools"]:
            session = await connection.session(split, 0)  # an environment may have tools of a task
            try:
                names = [tool.name for tool in await connection.call(session.list_tools)]
            finally:
                await end_session(session)
            for name in env.args["tools"]:
                if name not in names:
                    raise EnvError(f"it has no tool {_unknown(name, names)}")
    except EnvError as error:
        return f"`{env.name}` cannot be played: {error}"
    finally:
        await connection.close()
    return None


def _unknown(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    advice = f"; did you mean `{close[0]}`?" if close else ""
    listed = ", ".join(f"`{one}`" for one in known) or "none"
    return f"`{name}`: there is {listed}{advice}"
