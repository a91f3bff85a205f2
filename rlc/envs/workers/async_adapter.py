"""Blocking sources as asynchronous ones: their calls are made by workers.

A worker process is sent the pickled state of an episode with an action, and returns the state after
it. No worker owns an episode, so any of them can take the next step, and a lost step can be
repeated.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from hashlib import blake2b
from typing import Any, ParamSpec, TypeVar

from attrs import define, field, frozen

from rlc.chat import Action, ContractError, EnvError, Observation
from rlc.data import load_attribute
from rlc.envs.base import AsyncEpisode, BlockingSource, Closable, Episode, NumberedSource, TaskKey
from rlc.envs.workers.processes import ExecutorWorkers, ProcessWorkers, RayWorkers
from rlc.envs.workers.threads import MOST_THREADS, ThreadWorkers
from rlc.errors import first_line

P = ParamSpec("P")
_T = TypeVar("_T")

_LOADED: dict[str, BlockingSource] = {}  # in a worker: the sources that were sent to it
_STATE = "the state of an episode"


@frozen
class PickledSource:
    """A source for other processes; ``digest`` identifies it."""

    digest: str
    content: bytes


def pickle_source(source: BlockingSource) -> PickledSource:
    """Raise EnvError for a source that cannot be pickled."""
    content = _pickled(source, "the environment")
    return PickledSource(blake2b(content, digest_size=16).hexdigest(), content)


def open_episodes(source: BlockingSource, task: TaskKey) -> list[Episode]:
    """Return the episodes of all members of a task. Raise ContractError for another number."""
    if isinstance(source, NumberedSource):
        episodes = source.numbered(task.order, task.number, task.size)
    else:
        episodes = source.group(task.seed, task.size)
    if len(episodes) != task.size:
        raise ContractError(f"{task.size} episodes are due, and there are {len(episodes)}")
    return episodes


def load_source(pickled: PickledSource) -> None:
    """In a worker: unpickle a source, which imports its library."""
    if pickled.digest not in _LOADED:
        _LOADED[pickled.digest] = pickle.loads(pickled.content)


def _with_portable_errors(function: Callable[P, _T]) -> Callable[P, _T]:
    """Make errors of a function that cannot be pickled EnvErrors."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            try:
                survives = type(pickle.loads(pickle.dumps(error))) is type(error)
            except Exception:  # exceptions of other libraries may raise anything when copied
                survives = False
            if survives:
                raise
            raise EnvError(f"{type(error).__name__}: {error}") from error
        except BaseException as error:  # of an environment that tries to end the program
            raise EnvError(f"the environment raised {type(error).__name__}") from error

    return call


@_with_portable_errors
def open_group(
    digest: str, pickled: PickledSource | None, task: TaskKey, members: Sequence[int]
) -> list[tuple[bytes, Observation]] | None:
    """In a worker: return the states and first observations of some members of a task. None if the
    worker needs the pickled source."""
    if pickled is not None:
        load_source(pickled)
    if digest not in _LOADED:
        return None
    episodes = open_episodes(_LOADED[digest], task)
    return [(_pickled(episodes[m], _STATE), episodes[m].first) for m in members]


@_with_portable_errors
def step(state: bytes, action: str) -> tuple[bytes, Observation]:
    episode: Episode = pickle.loads(state)
    seen = episode.step(action)
    # An episode that is over is not stepped again, and its state may be large.
    return (b"" if seen.done else _pickled(episode, _STATE)), seen


def _pickled(value: Any, what: str) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise EnvError(
            f"{what} cannot be sent to another process ({first_line(error)}): take "
            "`workers(threads)`"
        ) from error


Workers = ProcessWorkers | ExecutorWorkers | RayWorkers  # which make calls in other processes


def make_async(
    source: BlockingSource, settings: Mapping[str, Any] | None = None
) -> ThreadedSource | ProcessSource:
    """Wrap a source whose calls are made as ``workers()`` says; None: in threads. Raise EnvError
    for an executor that is not found, or a source that cannot be pickled for it."""
    settings = settings or {"kind": "threads", "count": None}
    kind, count = settings["kind"], settings["count"]
    if kind == "threads":
        return ThreadedSource(source, ThreadWorkers(count or MOST_THREADS))
    pickled = pickle_source(source)
    if kind == "processes":
        workers: Workers = ProcessWorkers(count or os.cpu_count() or 1, (load_source, pickled))
    elif kind == "ray":
        reserved = settings["cpus"], settings["resources"], settings["address"]
        workers = RayWorkers(count, *reserved, (load_source, pickled))
    else:
        workers = ExecutorWorkers(load_attribute(settings["executor"]), count)
    return ProcessSource(pickled, workers, source)


@frozen
class ThreadedSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes stay in this process."""

    source: BlockingSource
    threads: ThreadWorkers

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
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
        self.state = b""  # all that there is of an episode between two steps
