"""What the runtime asks of an environment, whatever library it comes from.

The runtime itself is asynchronous: it plays :class:`AsyncEpisode`s of :class:`AsyncSource`s. An
environment whose calls block keeps the simpler :class:`EnvSource` or :class:`NumberedSource`, and
:mod:`rlc.envs.workers.async_adapter` takes its calls off the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeGuard, runtime_checkable

from attrs import evolve, field, frozen

from rlc.errors import Error

SOLVED = 1.0  # the reward from which on a task counts as solved


class EnvError(Error):
    """An environment that cannot be made or failed; the text is one sentence. ``cause`` is the
    word by which rollouts that failed with it are counted."""

    cause = "environment"


class ContractError(EnvError):
    """What an environment gave is not what :class:`Observation` allows."""

    cause = "contract"


@frozen
class Observation:
    """What the policy sees next, and whether there is a next.

    ``metrics`` are numbers about the action before, such as whether an answer could be read.
    ``messages`` are what a chat is shown in place of ``text``, such as the results of tools;
    ``text`` stays the form that people read. A ``reward`` of None is none at all, which no
    reduction counts. ``truncated``, with ``done``: the episode is over without an end of its own.
    """

    text: str
    reward: float | None = 0.0
    done: bool = False
    metrics: Mapping[str, float] = field(factory=dict)
    messages: tuple[Mapping[str, Any], ...] = ()
    truncated: bool = False


@frozen
class Action:
    """What the policy said, as the history read it. ``message`` is the renderer's parsed message,
    with tool calls where there are any; None for histories that are no chat."""

    text: str
    message: Mapping[str, Any] | None = None


@frozen
class TaskKey:
    """Which task to open. A source has tasks by ``number``, in the order that the seed ``order``
    names, or picks one by ``seed``. ``size`` is how many members its group has."""

    order: int
    number: int
    seed: int
    size: int


@runtime_checkable
class AsyncEpisode(Protocol):
    """One playable episode, already reset. ``first`` is the opening observation."""

    @property
    def first(self) -> Observation: ...

    async def play(self, action: Action) -> Observation:
        """Play one action. Raises whatever the environment raises. May be cancelled at any
        await, and is then not called again."""

    async def close(self) -> None:
        """Let go of what the episode holds. Always awaited, however the episode ended; safe to
        call twice."""


class JoiningEpisode(AsyncEpisode, Protocol):
    """An episode of a game that the members of a group play with each other. Each call may wait
    for other members' moves, and ``first`` is there once ``join`` has given it."""

    async def join(self) -> Observation:
        """The opening observation, once it is this member's turn."""


def joins(episode: AsyncEpisode) -> TypeGuard[JoiningEpisode]:
    """Whether an episode is part of such a game."""
    return hasattr(type(episode), "join")


@runtime_checkable
class AsyncSource(Protocol):
    """Makes episodes. Where it must wait for a free place, it does so within
    ``with rlc.envs.deadlines.waiting():``, which stops the clock of every deadline around it."""

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        """The episodes of these members of a task, all in the same initial state. A member that
        is opened again starts from that state too. What was opened when this raises or is
        cancelled is closed by the source."""

    async def close(self) -> None:
        """Let go of what the source holds; safe to call twice."""


class Episode(Protocol):
    """One playable episode of an environment that blocks, already reset."""

    @property
    def first(self) -> Observation: ...

    def step(self, action: str) -> Observation:
        """Play one action. Raises whatever the environment raises."""


@runtime_checkable
class EnvSource(Protocol):
    """Makes groups of episodes that block."""

    def group(self, seed: int, size: int) -> list[Episode]:
        """``size`` episodes of the task that ``seed`` picks, all in the same initial state."""


@runtime_checkable
class NumberedSource(Protocol):
    """Makes groups of episodes that block from a list of tasks, gone through by number."""

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        """``size`` episodes of task ``number`` (0, 1, …), all in the same initial state. The seed
        ``order`` names the order in which the tasks come, where they are shuffled."""


BlockingSource = EnvSource | NumberedSource


def checked(seen: Any) -> Observation:
    """The observation with plain floats and a plain truth value. Raises ContractError for what is
    no observation, has no text, or has a reward or metric that is no finite number."""
    if not isinstance(seen, Observation):
        raise ContractError(f"the environment gave a {type(seen).__name__}, not an Observation")
    if type(seen.text) is not str:
        raise ContractError(f"the observation is a {type(seen.text).__name__}, not text")
    reward = None if seen.reward is None else _number("the reward", seen.reward)
    metrics = {name: _number(f"the metric `{name}`", v) for name, v in seen.metrics.items()}
    done, truncated = bool(seen.done), bool(seen.truncated)
    return evolve(seen, reward=reward, done=done, metrics=metrics, truncated=truncated)


def _number(what: str, value: Any) -> float:
    """A plain number, or a scalar of an array library, as a float."""
    try:
        plain = value.item() if hasattr(value, "item") else value
    except (ValueError, RuntimeError):  # an array of several, of numpy or torch
        plain = None
    if not isinstance(plain, bool | int | float):
        raise ContractError(f"{what} is a {type(value).__name__}, not a number")
    if not math.isfinite(plain):
        raise ContractError(f"{what} is {float(plain)}, not a finite number")
    return float(plain)


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
