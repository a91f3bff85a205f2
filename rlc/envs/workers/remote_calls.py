"""Episodes as values that travel: what worker processes are asked to do.

A worker gets the pickled state of an episode with an action, and gives back the state after it:
no worker owns an episode, so any can take the next step, and a step that was lost can be repeated.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any, TypeVar

from attrs import frozen

from rlc.envs.base import (
    BlockingSource,
    ContractError,
    EnvError,
    Episode,
    NumberedSource,
    Observation,
    TaskKey,
)

T = TypeVar("T")

_LOADED: dict[str, BlockingSource] = {}  # in a worker: the sources that it has met


@frozen
class PickledSource:
    """A source on its way to other processes; ``digest`` names it."""

    digest: str
    content: bytes


def pickle_source(source: BlockingSource) -> PickledSource:
    """Raises EnvError for a source that cannot be pickled."""
    content = _pickled(source, "the environment")
    return PickledSource(blake2b(content, digest_size=16).hexdigest(), content)


def open_episodes(source: BlockingSource, task: TaskKey) -> list[Episode]:
    """The episodes of all members of a task. Raises ContractError if they are not so many."""
    if isinstance(source, NumberedSource):
        episodes = source.numbered(task.order, task.number, task.size)
    else:
        episodes = source.group(task.seed, task.size)
    if len(episodes) != task.size:
        raise ContractError(f"{task.size} episodes are due, and there are {len(episodes)}")
    return episodes


def load_source(pickled: PickledSource) -> None:
    """In a worker: unpack a source, and with it import its library."""
    if pickled.digest not in _LOADED:
        _LOADED[pickled.digest] = pickle.loads(pickled.content)


def open_group(
    digest: str, pickled: PickledSource | None, task: TaskKey, members: Sequence[int]
) -> list[tuple[bytes, Observation]] | None:
    """In a worker: the states and first observations of some members of a task. None where the
    worker has not met the source: it is to be asked again, with the pickled."""

    def made() -> list[tuple[bytes, Observation]]:
        episodes = open_episodes(_LOADED[digest], task)
        return [(_state(episodes[member]), episodes[member].first) for member in members]

    if pickled is not None:
        _sendable(lambda: load_source(pickled))
    return _sendable(made) if digest in _LOADED else None


def step(state: bytes, action: str) -> tuple[bytes, Observation]:
    """In a worker: play one action."""

    def played() -> tuple[bytes, Observation]:
        episode: Episode = pickle.loads(state)
        seen = episode.step(action)
        # Nobody will step an episode again that is over, and its state may be large.
        return (b"" if seen.done else _state(episode)), seen

    return _sendable(played)


def _state(episode: Episode) -> bytes:
    return _pickled(episode, "the state of an episode")


def _pickled(value: Any, what: str) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        raise EnvError(
            f"{what} cannot be sent to another process ({_first_line(error)}): take "
            "`workers(threads)`"
        ) from error


def _sendable(function: Callable[[], T]) -> T:
    """What the function gives, or an error that survives the way back."""
    try:
        return function()
    except Exception as error:
        try:
            survives = type(pickle.loads(pickle.dumps(error))) is type(error)
        except Exception:  # whatever foreign exceptions do when they are copied
            survives = False
        if survives:
            raise
        raise EnvError(f"{type(error).__name__}: {error}") from None
    except BaseException as error:  # of an environment that tries to end the program
        raise EnvError(f"the environment raised {type(error).__name__}") from None


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
