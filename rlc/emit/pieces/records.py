"""Environments, and the episodes that are played in them"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlc.algo import reduce_rewards
from rlc.emit.pieces.job import *


@dataclass(frozen=True)
class Env:
    """An environment, and how its episodes are played."""

    name: str
    if IS_MIXTURE:
        weight: float  # its share of the tasks, relative to the others
    group: int  # episodes of each task
    params: Any  # of the sampling of a reply
    tasks: Any  # `open(number, seed, size)` gives the episodes of a task
    prompts: Callable[[], Any]  # makes the prompts of one episode
    if IS_CREDITED:
        credit: Any = None  # gives the episodes of a task the rewards that they count with


@dataclass
class Turn:
    """A reply, with the prompt that it answers."""

    prompt: list[Any]
    tokens: list[int]
    logprobs: list[float]
    reward: float
    if IS_RECORDED:
        sequence_id: str = ""  # where the service records what it samples
    if IS_CREDITED:
        is_last: bool = False  # the episode ended by itself
        is_cut_off: bool = False


@dataclass
class Episode:
    """An attempt at a task."""

    env: str
    task: int
    turns: list[Turn]

    @property
    def reward(self) -> float:
        return sum(turn.reward for turn in reversed(self.turns))


def credited(
    group: Sequence[Episode],
    reduce: str,
    shaped: Callable[..., Any] | None = None,
    nonterminal: float | None = None,
    **bounds: Any,
) -> None:
    """Give the turns of a task's episodes the rewards that they count with."""
    for one in group:
        rewards, ended = [turn.reward for turn in one.turns], one.turns[-1].is_last
        how = bounds if shaped is None else {}
        found = reduce_rewards(rewards, reduce, nonterminal=nonterminal, ended=ended, **how)
        for turn, value in zip(one.turns, found or (), strict=True):
            turn.reward = value
    if shaped is not None and group:
        columns: dict[str, Any] = {
            "total": [sum(turn.reward for turn in one.turns) for one in group]
        }
        columns["tokens"] = [float(sum(len(turn.tokens) for turn in one.turns)) for one in group]
        columns["turns"] = [float(len(one.turns)) for one in group]
        ends = [one.turns[-1] for one in group]
        columns["truncated"] = [float(turn.is_cut_off or not turn.is_last) for turn in ends]
        rewards = shaped(**{name: np.array(column) for name, column in columns.items()})
        for one, reward in zip(group, rewards.tolist(), strict=True):
            for turn in one.turns:
                turn.reward = 0.0
            one.turns[-1].reward = (reduce_rewards([reward], "sum", **bounds) or (0.0,))[0]
