"""What a run is made of: turns, rollouts, and the account of what they used."""

from __future__ import annotations

from attrs import define, field, frozen


class RunError(Exception):
    """A run that cannot start or go on. ``hint`` says what to do."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


@frozen
class Turn:
    """One sampled reply. ``prompt`` holds all tokens before it; ``logprobs`` are the sampler's."""

    prompt: list[int] = field(repr=False)
    tokens: list[int] = field(repr=False)
    logprobs: list[float] = field(repr=False)
    observation: str
    action: str
    reward: float
    stop_reason: str


@frozen
class Rollout:
    """One episode of one member of a group. The labels travel with it from start to end.

    ``task`` numbers the environment's tasks in the order they were drawn; ``digest`` identifies
    the task's first observation, the same for all members. ``error`` is the first cause where
    the episode failed after all retries; a failed rollout enters no statistics.
    """

    env: str
    task: int
    member: int
    digest: str
    turns: tuple[Turn, ...]
    ended: str  # "done", "context" or "failed"
    error: str | None = None

    @property
    def reward(self) -> float:
        """Sum of the turn rewards."""
        return sum(turn.reward for turn in self.turns)


@define
class Usage:
    """Tokens used, by the kinds that a service bills."""

    prefill: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0
