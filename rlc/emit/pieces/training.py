"""Updates, metrics and checkpoints"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from tinker import types

from rlc.emit.pieces.datums import Trained
from rlc.emit.pieces.job import ADAM, STAGE


async def save(
    service: Any, training: Any, step: int, saved: list[str], keep: int, ttl: int | None
) -> None:
    """Save the state of a step, and delete all but the newest ones."""
    state = await training.save_state(f"{STAGE}-{step:06d}", ttl, overwrite=True)
    saved.append(state.path)
    print(f"saved {state.path}", flush=True)
    while len(saved) > keep:
        await service.create_rest_client().delete_checkpoint_from_tinker_path(saved.pop(0))


@dataclass
class Counted:
    """A sampler whose tokens are counted."""

    sampler: Any
    used: Counter[str]

    async def sample(self, prompt: Any, count: int, params: Any) -> Any:
        response = await self.sampler.sample(prompt, count, params)
        hits = response.prompt_cache_hit_tokens
        self.used["prefill"] += prompt.length - hits
        self.used["cached"] += hits + (count - 1) * prompt.length
        self.used["sampled"] += sum(len(reply.tokens) for reply in response.sequences)
        return response


async def update(training: Any, gradient: Any, rate: float) -> float:
    """Submit the optimiser step with a gradient, both in one go; return the sum of the loss."""
    stepped = training.optim_step(types.AdamParams(learning_rate=rate, **ADAM))
    output, _ = await gradient, await stepped
    return float(output.metrics["loss:sum"])


def task_of(own: Sequence[Trained]) -> tuple[str, int]:
    return own[0].episode.env, own[0].episode.task


def parts_of(played: Sequence[list[Trained]], count: int) -> list[list[list[Trained]]]:
    """The episodes of each of so many updates, those of a task together."""
    tasks = dict[tuple[str, int], list[list[Trained]]]()
    for own in played:
        tasks.setdefault(task_of(own), []).append(own)
    bounds = np.linspace(0, len(tasks), count + 1).round().astype(int)
    groups = list(tasks.values())
    return [sum(groups[a:b], list[list[Trained]]()) for a, b in pairwise(bounds)]


def report(path: str, step: int, steps: int, measured: Mapping[str, float]) -> None:
    """Print the metrics of a step, and add them to a file."""
    told = ", ".join(f"{name} {value:.4g}" for name, value in measured.items())
    print(f"step {step} of {steps}: {told}", flush=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **measured}) + "\n")


@dataclass
class Budget:
    """What a run may spend. It ends before a step that, like the last one, would exceed it.
    ``prices`` are USD per million tokens, by their kind."""

    usd: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    tokens: int | None = None
    seconds: float | None = None
    before: Counter[str] = field(default_factory=Counter)
    started: float = field(default_factory=time.monotonic)

    def is_spent(self, used: Counter[str]) -> bool:
        last, self.before = used - self.before, Counter(used)
        usd = sum(n * self.prices.get(kind, 0.0) for kind, n in (used + last).items()) / 1e6
        tokens, seconds = (used + last).total(), time.monotonic() - self.started
        spent = (self.usd, usd), (self.tokens, tokens), (self.seconds, seconds)
        return any(limit is not None and amount > limit for limit, amount in spent)
