"""Environments, and the episodes that are played in them"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tinker import types


@dataclass(frozen=True)
class Env:
    """An environment, and how its episodes are played."""

    name: str
    weight: float  # its share of the tasks, relative to the others
    group: int  # episodes of each task
    params: types.SamplingParams  # of a reply
    tasks: Any  # `open(number, seed, size)` gives the episodes of a task
    prompts: Callable[[], Any]  # makes the prompts of one episode


@dataclass
class Turn:
    """A reply, with the prompt that it answers."""

    prompt: list[Any]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    sequence_id: str = ""  # where the service records what it samples


@dataclass
class Episode:
    """An attempt at a task."""

    env: str
    task: int
    turns: list[Turn]

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in reversed(self.turns))
