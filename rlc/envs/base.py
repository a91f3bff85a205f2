"""What the runtime asks of an environment, whatever library it comes from."""

from __future__ import annotations

from typing import Protocol

from attrs import frozen


class EnvError(Exception):
    """An environment that cannot be made or broke its contract; the text is one sentence."""


@frozen
class Observation:
    """What the policy sees next, and whether there is a next."""

    text: str
    reward: float = 0.0
    done: bool = False


class Episode(Protocol):
    """One playable episode, already reset. ``first`` is the opening observation."""

    first: Observation

    def step(self, action: str) -> Observation:
        """Play one action. Raises whatever the environment raises."""


class EnvSource(Protocol):
    """Makes groups of episodes."""

    def group(self, seed: int, size: int) -> list[Episode]:
        """``size`` episodes of the task that ``seed`` picks, all in the same initial state."""
