"""Environments whose calls block, lifted off the event loop: ``workers()`` in a recipe."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.envs.base import Action, AsyncEpisode, BlockingSource, Episode, Observation, TaskKey
from rlc.envs.python.attributes import load_attribute
from rlc.envs.workers.executors import ExecutorWorkers
from rlc.envs.workers.processes import ProcessWorkers
from rlc.envs.workers.remote_calls import (
    PickledSource,
    load_source,
    open_episodes,
    open_group,
    pickle_source,
    step,
)
from rlc.envs.workers.threads import MOST_THREADS, ThreadWorkers


class Workers(Protocol):
    """Where blocking calls are made, in other processes."""

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function gives, or raises. A call that is cancelled is given up, whatever it
        does from then on."""

    async def close(self) -> None:
        """Let the workers go; safe to call twice."""


def make_async(
    source: BlockingSource, settings: Mapping[str, Any] | None = None
) -> ThreadedSource | ProcessSource:
    """The source with its calls made where the arguments of ``workers()`` say; None: in threads.
    Raises EnvError for an executor that is not there, or a source that cannot be sent to it."""
    kind, count = "threads", None
    if settings is not None:
        kind, count = settings["kind"], settings["count"]
    if kind == "threads":
        return ThreadedSource(source, ThreadWorkers(count or MOST_THREADS))
    pickled = pickle_source(source)
    if kind == "processes":
        count = count or os.cpu_count() or 1
        return ProcessSource(pickled, ProcessWorkers(count, (load_source, pickled)), source)
    assert settings is not None
    return ProcessSource(
        pickled, ExecutorWorkers(load_attribute(settings["executor"]), count), source
    )


@frozen
class ThreadedSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes stay where they are."""

    source: BlockingSource
    threads: ThreadWorkers

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """All resets of a group are one call."""
        episodes = await self.threads.call(open_episodes, self.source, task)
        return [_Local(episodes[member], self.threads) for member in members]

    async def close(self) -> None:
        await _closed(self.source, self.threads)


@define
class _Local:
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
        """Once: an episode that is closed again is not asked again."""
        if not self._closed:
            self._closed = True
            await _closed(self.episode, self.threads)


async def _closed(closable: Any, threads: ThreadWorkers) -> None:
    close = getattr(closable, "close", None)
    if close is not None:
        await threads.call(close)


@frozen
class ProcessSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes go from process to process."""

    pickled: PickledSource = field(repr=False)
    workers: Workers
    source: BlockingSource = field(repr=False)

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """All resets of a group are one call."""
        ask = (task, list(members))
        states = await self.workers.call(open_group, self.pickled.digest, None, *ask)
        if states is None:
            states = await self.workers.call(open_group, self.pickled.digest, self.pickled, *ask)
        return [_Travelling(first, state, self.workers) for state, first in states]

    async def close(self) -> None:
        await self.workers.close()
        await _closed(self.source, ThreadWorkers(1))


@define
class _Travelling:
    first: Observation
    state: bytes = field(repr=False)
    workers: Workers

    async def play(self, action: Action) -> Observation:
        seen: Observation
        self.state, seen = await self.workers.call(step, self.state, action.text)
        return seen

    async def close(self) -> None:
        """Between two steps an episode is but its state."""
        self.state = b""
