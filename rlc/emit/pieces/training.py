"""Updates, metrics and checkpoints"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tinker import ServiceClient, types

from rlc.algo import learning_rate
from rlc.emit.pieces.job import *

if TYPE_CHECKING:
    import wandb


@dataclass
class Run:
    """A training run: its clients, what it has saved, and the tokens that it has used."""

    service: Any
    training: Any
    steps: int
    metrics: str  # the file that they are written to
    saved: list[str] = field(default_factory=list)
    if LIMITS:
        used: Counter[str] = field(default_factory=Counter)
        budget: Budget = field(default_factory=lambda: Budget(**LIMITS))

    async def update(self, gradient: Any, step: int) -> float:
        """Submit the optimiser step with a gradient, both in one go; return the sum of the loss."""
        if SCHEDULE:
            rate = learning_rate(SCHEDULE, LEARNING_RATE, step, STEPS, WARMUP, FLOOR)
            adam = types.AdamParams(learning_rate=rate, **ADAM)
        else:
            adam = types.AdamParams(learning_rate=LEARNING_RATE, **ADAM)
        stepped = self.training.optim_step(adam)
        output, _ = await gradient, await stepped
        return float(output.metrics["loss:sum"])

    async def is_over(self, step: int, measured: Mapping[str, float]) -> bool:
        """Report a step, and save its state if that is due; return whether it is the last."""
        with open(self.metrics, "a", encoding="utf-8") as file:
            print(line := json.dumps({"step": step, **measured}), file=file)
        print(line, flush=True)
        if WANDB is not None:
            wandb.log(measured, step=step)
        last = step == self.steps
        if LIMITS:
            last = last or self.budget.is_spent(self.used)
        if last or step % SAVE_EVERY == 0:
            state = await self.training.save_state(f"{STAGE}-{step:06d}", TTL, overwrite=True)
            self.saved.append(state.path)
            print(f"saved {state.path}", flush=True)
        while len(self.saved) > KEEP:
            rest = self.service.create_rest_client()
            await rest.delete_checkpoint_from_tinker_path(self.saved.pop(0))
        if IS_EXPECTED and last:
            require(measured)
        return last


async def opened(steps: int, metrics: str) -> Run:
    """Open the model that is trained."""
    service: Any = ServiceClient(user_metadata={"stage": STAGE})
    if IS_SAVED:
        if WITH_OPTIMIZER:
            training = await service.create_training_client_from_state_with_optimizer(MODEL)
        else:
            training = await service.create_training_client_from_state(MODEL)
    else:
        training = await service.create_lora_training_client(**MODEL)
    if WANDB is not None:
        wandb.init(**WANDB)
    return Run(service, training, steps, metrics)


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
