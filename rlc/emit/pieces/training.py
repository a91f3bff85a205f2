"""Updates, metrics and checkpoints."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tinker import types


@dataclass
class Checkpoints:
    """The states that are kept: the newest ones."""

    service: Any
    training: Any
    stage: str
    keep: int
    ttl_seconds: int | None
    saved: list[str] = field(default_factory=list)

    async def save(self, step: int) -> None:
        name = f"{self.stage}-{step:06d}"
        state = await self.training.save_state(name, self.ttl_seconds, overwrite=True)
        self.saved.append(state.path)
        print(f"saved {state.path}", flush=True)
        while len(self.saved) > self.keep:
            rest = self.service.create_rest_client()
            await rest.delete_checkpoint_from_tinker_path(self.saved.pop(0))


async def update(
    training: Any, gradient: Any, rate: float, adam: dict[str, float]
) -> float:
    """Submit the optimiser step with a gradient, so that the service does both in one
    go. Return the sum of the loss."""
    stepped = training.optim_step(types.AdamParams(learning_rate=rate, **adam))
    output, _ = await gradient, await stepped
    return float(output.metrics["loss:sum"])


def report(path: str, step: int, steps: int, **metrics: float) -> None:
    """Print the metrics of a step, and add them to a file."""
    told = ", ".join(f"{name} {value:.4g}" for name, value in metrics.items())
    print(f"step {step} of {steps}: {told}", flush=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": step, **metrics}) + "\n")
