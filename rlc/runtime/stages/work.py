"""What the work of a training stage, of either kind, offers to the job that drives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from attrs import define, frozen

from rlc.plan.records import LOCAL, SftPlan, TrainPlan
from rlc.runtime.graph import At, StepFunction, StepOutcome
from rlc.runtime.journal.checkpoints import ROLLING_TTL, Saving, is_due, slack_of
from rlc.runtime.journal.database import Journal
from rlc.runtime.records import Usage
from rlc.service.errors import CheckpointError
from rlc.service.interface import SamplingClient, ServiceClient, TrainingClient


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
    cursor: dict[str, Any]
    checkpoint: Saving | None


@define(eq=False)
class Weights:
    """The adapter of a stage: snapshots for sampling, states to go on from. ``step`` counts the
    updates."""

    training: TrainingClient
    service: ServiceClient
    journal: Journal
    plan: TrainPlan | SftPlan
    stop_requested: Callable[[], bool]
    note: Callable[[str], None]
    step: int = 0

    async def snapshot(self, step: int) -> Snapshot:
        """A snapshot of the weights as they were after ``step``, for one step to sample from.

        Where steps overlap it is saved by name and journalled before it is used: a resumed run
        plays the steps that were under way with the same weights. Each call gives a client of its
        own, since requests of two steps that met in one batch of the service would change the
        last bits of each other's logprobs.
        """
        if not slack_of(self.plan):
            client = await self.training.save_weights_and_get_sampling_client()
            return Snapshot(client, self.step)
        saved = {stored.step: stored.path for stored in self.journal.snapshots(self.plan.name)}
        if step in saved:
            try:
                return Snapshot(await self._sampler(saved[step]), step)
            except CheckpointError as error:
                self.note(f"{error} Sampling from the weights after step {self.step} instead")
        elif step != self.step:
            self.note(
                f"the weights after step {step} were not kept: sampling from those after step "
                f"{self.step} instead"
            )
        return Snapshot(await self._sampler(await self._save_for_sampling()), self.step)

    async def _save_for_sampling(self) -> str:
        name, ttl = f"{self.plan.name}-{self.step:06d}", self._ttl(lasting=False)
        path = (await self.training.save_weights_for_sampler(name, ttl_seconds=ttl)).path
        self.journal.add_snapshot(self.plan.name, self.step, path)
        return path

    async def _sampler(self, path: str) -> SamplingClient:
        return await self.service.create_sampling_client(model_path=path)

    async def checkpoint(self, at: At, inputs: Mapping[str, Any]) -> Saving | None:  # noqa: ARG002
        """The node of both kinds of stages: asks for the state, and does not wait for it."""
        lasting = is_due(self.plan, at.step) or self.stop_requested()
        if not lasting and self.plan.save.rolling is None:
            return None
        return Saving(asyncio.ensure_future(self.save(at.step, lasting)), lasting)

    async def save(self, step: int, lasting: bool = True) -> str:
        """Save weights and optimiser after ``step``; gives the path that restores them."""
        name, ttl = f"{self.plan.name}-{step:06d}", self._ttl(lasting)
        return (await self.training.save_state(name, ttl_seconds=ttl, overwrite=True)).path

    def _ttl(self, lasting: bool) -> int | None:
        """How long a service may keep something; what it keeps costs nothing on this machine."""
        ttl = self.plan.save.ttl_seconds
        if lasting or self.plan.model.service == LOCAL:
            return ttl
        return ROLLING_TTL if ttl is None else min(ttl, ROLLING_TTL)


class Work(Protocol):
    """A stage in progress. ``usage`` counts the tokens of each step as they come, and
    ``reference_usage`` those that a reference model reads."""

    weights: Weights
    usage: dict[int, Usage]
    reference_usage: dict[int, Usage]

    def functions(self) -> Mapping[str, StepFunction]:
        """By the kind of the graph's nodes."""

    async def report(self, step: int, outcome: StepOutcome) -> StepReport:
        """Metrics, records and cursor of a step; what was kept of it is forgotten."""

    async def close(self) -> None:
        """Let go of what the work holds beside its weights."""
