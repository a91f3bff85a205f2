"""What the runtime asks of an environment, whatever library it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from attrs import field, frozen

SOLVED = 1.0  # the reward from which on a task counts as solved


class EnvError(Exception):
    """An environment that cannot be made or broke its contract; the text is one sentence."""


@frozen
class Observation:
    """What the policy sees next, and whether there is a next.

    ``metrics`` are numbers about the action before, such as whether an answer could be read.
    """

    text: str
    reward: float = 0.0
    done: bool = False
    metrics: Mapping[str, float] = field(factory=dict)


class Episode(Protocol):
    """One playable episode, already reset. ``first`` is the opening observation."""

    @property
    def first(self) -> Observation: ...

    def step(self, action: str) -> Observation:
        """Play one action. Raises whatever the environment raises."""


class EnvSource(Protocol):
    """Makes groups of episodes."""

    def group(self, seed: int, size: int) -> list[Episode]:
        """``size`` episodes of the task that ``seed`` picks, all in the same initial state."""


@runtime_checkable
class NumberedSource(Protocol):
    """Makes groups of episodes from a list of tasks, which are gone through by number."""

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        """``size`` episodes of task ``number`` (0, 1, …), all in the same initial state. The seed
        ``order`` names the order in which the tasks come, where they are shuffled."""
