"""What a script counts and keeps of its rollouts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Env:
    """An environment, and how its episodes are played."""

    name: str
    id: str
    args: dict[str, Any]
    weight: float  # its share of the tasks, relative to the others
    group: int  # episodes of each task
    temperature: float
    max_tokens: int
    earlier: bool = False  # every prompt has all earlier observations
    template: str = ""  # the whole prompt around an observation
    instruction: str = ""  # added to the first observation of a chat


@dataclass
class Turn:
    """A reply, with the prompt that it answers."""

    prompt: list[int]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    sequence_id: str = ""  # where the service records what it samples


@dataclass
class Episode:
    """An attempt at a task."""

    env: str
    task: int
    turns: list[Turn] = field(default_factory=list)

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in self.turns)


@dataclass
class Usage:
    """Tokens of all kinds, as they are billed."""

    prefill: int = 0
    cached: int = 0
    sampled: int = 0
    trained: int = 0

    def counts(self) -> list[int]:
        return [self.prefill, self.cached, self.sampled, self.trained]
