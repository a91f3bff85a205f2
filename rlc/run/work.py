"""What the work of a training stage, of either kind, offers to the job that drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import define, field, frozen

from rlc.plan.tree import SftPlan, TrainPlan
from rlc.run.graph import At, StepFunction, StepOutcome
from rlc.run.records import Usage
from rlc.service.interface import SamplingClient, TrainingClient


@frozen
class Snapshot:
    """A sampling client on the weights as they were after ``step``."""

    client: SamplingClient
    step: int


@frozen(eq=False)
class StepReport:
    """What there is to say of a step that is done."""

    metrics: dict[str, Any]
    rollouts: list[dict[str, Any]]
    cursor: dict[str, int]
    checkpoint: str | None


@define(eq=False)
class Weights:
    """The adapter of a stage: snapshots for sampling, checkpoints. ``step`` counts the updates."""

    training: TrainingClient
    plan: TrainPlan | SftPlan
    stop_requested: Callable[[], bool]
    step: int = 0
    _snapshot: Snapshot | None = field(default=None, init=False)

    async def snapshot(self) -> Snapshot:
        """A snapshot of the weights as they are now; while they stay so, the same one."""
        if self._snapshot is None or self._snapshot.step != self.step:
            client = await self.training.save_weights_and_get_sampling_client()
            self._snapshot = Snapshot(client, self.step)
        return self._snapshot

    def is_due(self, step: int) -> bool:
        """Whether the plan has a checkpoint after ``step``."""
        every = self.plan.save.every
        return step == self.plan.steps or (every is not None and step % every == 0)

    async def checkpoint(self, at: At, inputs: Mapping[str, Any]) -> str | None:  # noqa: ARG002
        """The node of both kinds of stages: a checkpoint where one is due."""
        due = self.is_due(at.step) or self.stop_requested()
        return await self.save(at.step) if due else None

    async def save(self, step: int) -> str:
        """Save weights and optimiser after ``step``; gives the path that restores them."""
        name, ttl = f"{self.plan.name}-{step:06d}", self.plan.save.ttl_seconds
        return (await self.training.save_state(name, ttl_seconds=ttl, overwrite=True)).path


class Work(Protocol):
    """A stage in progress. ``usage`` counts the tokens of each step as they come, and
    ``reference_usage`` those that a reference model reads."""

    weights: Weights
    usage: dict[int, Usage]
    reference_usage: dict[int, Usage]

    def functions(self) -> Mapping[str, StepFunction]:
        """By the kind of the graph's nodes."""

    def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Metrics, records and cursor of a step; what was kept of it is forgotten."""
