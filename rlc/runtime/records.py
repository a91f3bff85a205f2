"""What a run is made of: turns, rollouts, and the account of what they used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define, field, frozen

from rlc.envs.chunks import NO_CHUNKS, Chunks
from rlc.errors import Error


class RunError(Error):
    """A run that cannot start or continue."""


@frozen
class Turn:
    """One sampled reply. ``prompt`` holds all tokens before it, with the marks of ``chunks``, which
    are no text; ``logprobs`` are the sampler's; ``metrics`` are what the environment measured of
    it. A ``reward`` of None is none at all. ``calls`` of tools have an id, the tool's name and its
    arguments (JSON). ``sequence_id`` is the service's name of the reply."""

    prompt: Sequence[int] = field(repr=False)
    tokens: Sequence[int] = field(repr=False)
    logprobs: Sequence[float] = field(repr=False)
    observation: str
    action: str
    reward: float | None
    stop_reason: str
    metrics: Mapping[str, float] = field(factory=dict)
    calls: tuple[tuple[str, str, str], ...] = ()
    chunks: Chunks = field(default=NO_CHUNKS, repr=False)
    sequence_id: str = field(default="", repr=False)


@frozen
class Rollout:
    """One episode of one member of a group. The labels travel with it from start to end.

    ``task`` numbers the environment's tasks in the order they were drawn; ``digest`` identifies
    the task's first observation, the same for all members. ``credit`` is what the episode counts
    for, one value a turn, as its environment's reward settings make it. ``error`` says why the
    episode failed after all retries, ``cause`` the same in a word: such a rollout has no credit
    and enters no statistics, unless the plan gives failures a reward. ``ended``, of the others,
    tells an end of the environment's own (``done``, ``truncated``) from a limit that was reached
    (``context``, ``prompt``, ``tokens``, ``turns``). ``staleness`` counts the optimiser steps
    since the weights that it was sampled from. Where a member is played in several roles, each
    part is a rollout of its own, with its ``role``. ``seconds`` has how long it waited for each of
    ``sampling`` and ``environment``. ``replaced``: its group was one of equals, and another is
    trained on in its place.
    """

    env: str
    task: int
    member: int
    digest: str
    turns: tuple[Turn, ...]
    ended: str
    credit: tuple[float, ...]
    error: str | None = None
    role: str = ""
    staleness: int = 0
    seconds: Mapping[str, float] = field(factory=dict)
    cause: str | None = None
    replaced: bool = False

    @property
    def reward(self) -> float:
        """Sum of the credit."""
        return sum(self.credit)

    def last_metric(self, kind: str) -> float:
        """What the environment measured of the last action; 0 where it measured nothing."""
        return self.turns[-1].metrics.get(kind, 0.0) if self.turns else 0.0

    @property
    def group(self) -> tuple[str, int]:
        """What the members of a group have in common."""
        return self.env, self.task


@define
class Usage:
    """Tokens used, by the kinds that a service bills."""

    prefill: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0
