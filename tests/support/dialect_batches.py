"""Random batches for the dialects of advantages, and what rlc makes of them."""

from __future__ import annotations

import random
from functools import cache

import numpy as np
from attrs import asdict, frozen

from rlc.algo import AdvantageScheme, Episodes, compute_advantages
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.plan.stages import PolicyGradient, Training

RECIPE = """
model policy {{ base = "tiny" }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {{
  model = policy
  env = guess
  batch = groups(4, group_size = 2)
  sampling = sample(max_tokens = 16)
  loss = importance_sampling()
  optimizer = adam(1e-4)
  steps = 1
  advantage = {}
}}
"""


@cache
def plan_with(text: str) -> Plan:
    """The plan of a recipe with this advantage."""
    compiled = compile_source(Source("test.rl", RECIPE.format(text)))
    assert compiled.plan is not None, [item.message for item in compiled.diagnostics]
    return compiled.plan


def scheme_of(text: str) -> AdvantageScheme:
    """The scheme that a recipe means."""
    (stage,) = plan_with(text).stages
    assert isinstance(stage, Training)
    return stage.of(PolicyGradient).advantage


@frozen
class Rollout:
    """One rollout of a batch: the rewards and action tokens of its turns, and its labels."""

    rewards: list[float]
    tokens: list[int]
    group: int
    role: int
    env: int
    record = asdict


Batch = list[Rollout]
Values = list[list[float]]  # of each rollout's turns


def draw_batch(draw: random.Random, square: bool = False) -> Batch:
    """Groups of one to six rollouts, or all of one size, some of them of equals; up to three turns;
    two roles; rewards in eighths, whose sums have no rounding errors."""
    size, batch = draw.choice([1, 2, 2, 3, 4, 5, 6]), Batch()
    for group in range(draw.randint(2, 5)):
        same = draw.random() < 0.2
        equal = [draw.randint(0, 16) / 8]
        for _ in range(size if square else draw.randint(1, 6)):
            turns = draw.randint(1, 3)
            rewards = [draw.choice([0, 0, draw.randint(-8, 16) / 8]) for _ in range(turns)]
            rewards[-1] += draw.choice([0, 1])
            batch.append(
                Rollout(
                    equal if same else [float(reward) for reward in rewards],
                    [draw.randint(1, 9) for _ in range(1 if same else turns)],
                    group,
                    draw.randint(0, 1),
                    group % 2,
                )
            )
    return batch


def episodes_of(batch: Batch) -> Episodes:
    return Episodes.from_rollouts(
        [r.rewards for r in batch],
        [r.tokens for r in batch],
        [r.group for r in batch],
        [r.env for r in batch],
        [r.role for r in batch],
    )


def difference(scheme: AdvantageScheme, batch: Batch, values: Values) -> float:
    """The largest difference of rlc's advantages from these, turn by turn."""
    found = compute_advantages(scheme, episodes_of(batch)).by_rollout()
    return max(
        float(np.abs(np.asarray(mine) - theirs).max())
        for mine, theirs in zip(found, values, strict=True)
    )
