"""Blocking sources as asynchronous ones: their calls are made by workers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from rlc.chat import Action, Observation
from rlc.data import load_attribute
from rlc.envs.base import AsyncEpisode, BlockingSource, Closable, Episode, TaskKey
from rlc.envs.workers.executors import ExecutorWorkers
from rlc.envs.workers.processes import ProcessWorkers
from rlc.envs.workers.ray_actors import RayWorkers
from rlc.envs.workers.remote_calls import (
    PickledSource,
    load_source,
    open_episodes,
    open_group,
    pickle_source,
    step,
)
from rlc.envs.workers.threads import MOST_THREADS, ThreadWorkers

Workers = ProcessWorkers | ExecutorWorkers | RayWorkers  # which make calls in other processes


def make_async(
    source: BlockingSource, settings: Mapping[str, Any] | None = None
) -> ThreadedSource | ProcessSource:
    """Wrap a source so that its calls are made as the arguments of ``workers()`` say; None: in
    threads. Raise EnvError for an executor that is not found, or a source that cannot be pickled
    for it."""
    kind, count = (settings["kind"], settings["count"]) if settings else ("threads", None)
    if kind == "threads":
        return ThreadedSource(source, ThreadWorkers(count or MOST_THREADS))
    pickled = pickle_source(source)
    if kind == "processes":
        workers: Workers = ProcessWorkers(count or os.cpu_count() or 1, (load_source, pickled))
    elif kind == "ray":
        assert settings is not None
        reserved = settings["cpus"], settings["resources"], settings["address"]
        workers = RayWorkers(count, *reserved, (load_source, pickled))
    else:
        assert settings is not None
        workers = ExecutorWorkers(load_attribute(settings["executor"]), count)
    return ProcessSource(pickled, workers, source)


@frozen
class ThreadedSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes stay in this process."""

    source: BlockingSource
    threads: ThreadWorkers

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Reset the episodes of a group in one call."""
        episodes = await self.threads.call(open_episodes, self.source, task)
        return [_ThreadedEpisode(episodes[member], self.threads) for member in members]

    async def close(self) -> None:
        await _close(self.source, self.threads)


@define
class _ThreadedEpisode:
    episode: Episode
    threads: ThreadWorkers
    _closed: bool = field(default=False, init=False)

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        seen: Observation = await self.threads.call(self.episode.step, action.text)
        return seen

    async def close(self) -> None:
        """Close the episode, once."""
        if not self._closed:
            self._closed = True
            await _close(self.episode, self.threads)


async def _close(closable: Any, threads: ThreadWorkers) -> None:
    if isinstance(closable, Closable):
        await threads.call(closable.close)


@frozen
class ProcessSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes go from process to process."""

    pickled: PickledSource = field(repr=False)
    workers: Workers
    source: BlockingSource = field(repr=False)

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """Reset the episodes of a group in one call."""
        digest, ask = self.pickled.digest, (task, list(members))
        states = await self.workers.call(open_group, digest, None, *ask)
        if states is None:
            states = await self.workers.call(open_group, digest, self.pickled, *ask)
        return [_ProcessEpisode(first, state, self.workers) for state, first in states]

    async def close(self) -> None:
        await self.workers.close()
        await _close(self.source, ThreadWorkers(1))


@define
class _ProcessEpisode:
    first: Observation
    state: bytes = field(repr=False)
    workers: Workers

    async def play(self, action: Action) -> Observation:
        seen: Observation
        self.state, seen = await self.workers.call(step, self.state, action.text)
        return seen

    async def close(self) -> None:
        """Forget the state, which is all that there is of an episode between two steps."""
        self.state = b""
