"""The weights of a stage: where they come from, snapshots to sample from, states to resume from."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from attrs import define, field, frozen

from rlc.catalog import find_weights, is_run_weights, loss_traits
from rlc.plan import LOCAL, ModelPlan, StagePlan, Training
from rlc.runtime.concurrency import in_thread
from rlc.runtime.graph import Inputs, NodeContext
from rlc.runtime.journal.checkpoints import (
    ROLLING_TTL,
    PendingCheckpoint,
    is_due,
    max_lag,
    past_step,
)
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.seeds import derive_seed
from rlc.service import CheckpointError, LossHandle, SamplingClient, ServiceClient, TrainingClient


class LostCheckpointError(RunError):
    """The newest checkpoint of a stage is unusable; it has been removed from the journal."""


async def open_weights(
    service: ServiceClient, folder: RunFolder, stage: StagePlan, note: Callable[[str], None]
) -> TrainingClient:
    """Return the weights that a stage starts from.

    The first of these that exists: its own newest checkpoint, with the state of the optimiser; the
    last checkpoint of the stage before it; the saved state that the model names; a fresh adapter.

    Raises:
        LostCheckpointError: the newest checkpoint is unusable, and there is an older one.
        RunError: there is no usable checkpoint.
    """
    model = stage.model
    metadata = {"rlc_run": folder.path.name, "rlc_stage": stage.name}
    metadata["renderer_name"] = model.renderer  # where the cookbook and `rlc serve` look for it
    load_weights = partial(service.create_training_client_from_state, user_metadata=metadata)
    if folder.journal.checkpoints(stage.name):
        load = service.create_training_client_from_state_with_optimizer
        return await _restore(folder, stage.name, partial(load, user_metadata=metadata))
    if stage.after is not None:
        if stage.trains:
            note(f"{stage.name} goes on from the weights of {stage.after}, with a fresh optimiser")
        return await _restore(folder, stage.after, load_weights)
    if model.weights is not None:
        return await open_saved(service, model, metadata)
    return await service.create_lora_training_client(
        model.base,
        rank=model.lora_rank,
        seed=derive_seed(folder.plan.seed, "lora", model.name) % 2**31,
        train_mlp=model.train_mlp,
        train_attn=model.train_attn,
        train_unembed=model.train_unembed,
        user_metadata=metadata,
    )


async def open_saved(
    service: ServiceClient, model: ModelPlan, metadata: dict[str, str] | None = None
) -> TrainingClient:
    """Return the weights that a model names, with a fresh optimiser. Raise WeightsError or
    ServiceError if they are not there."""
    name = model.weights
    assert name is not None
    if is_run_weights(name):
        found = await in_thread(find_weights, name)
        if not found.exactly:
            adapter = service.create_training_client_from_adapter
            return await adapter(found.place, model.base, user_metadata=metadata)
        name = found.place
    return await service.create_training_client_from_state(name, user_metadata=metadata)


async def open_sampler(service: ServiceClient, model: ModelPlan) -> SamplingClient:
    """Return a client that samples from a model as it is declared."""
    if model.weights is None:
        return await service.create_sampling_client(base_model=model.base)
    if "/sampler_weights/" in model.weights:
        return await service.create_sampling_client(model_path=model.weights)
    training = await open_saved(service, model)
    return await training.save_weights_and_get_sampling_client()


async def open_stage(service: ServiceClient, folder: RunFolder, stage: str) -> SamplingClient:
    """Return a client that samples from what a stage has left; raise as :func:`open_weights` does
    for a stage that goes on from it."""
    training = await _restore(folder, stage, service.create_training_client_from_state)
    return await training.save_weights_and_get_sampling_client()


async def _restore(
    folder: RunFolder, stage: str, load: Callable[[str], Awaitable[TrainingClient]]
) -> TrainingClient:
    """Load the newest checkpoint of a stage; raise as :func:`open_weights` does."""
    checkpoints = folder.journal.checkpoints(stage)
    if not checkpoints:
        raise RunError(f"stage `{stage}` has left no checkpoint to go on from")
    *older, newest = checkpoints
    try:
        return await load(checkpoints[newest])
    except CheckpointError as error:
        if not older:
            raise RunError(
                f"{error} It is the only one that `{stage}` has",
                "put it back from a backup, or start a new run",
            ) from error
        folder.journal.drop_checkpoint(stage, newest)
        raise LostCheckpointError(
            f"{error} Going on from step {older[-1]} of `{stage}`: what came after it is done again"
        ) from error


@frozen
class SamplerSnapshot:
    """A sampling client on the weights as they were after ``step``; ``pasts`` on those of earlier
    steps, by the interval at which they are renewed."""

    client: SamplingClient
    step: int
    pasts: Mapping[int, SamplingClient] = field(factory=dict)


@define(eq=False)
class StageWeights:
    """The adapter that a stage trains. ``step`` is the number of the last update; ``own_loss`` a
    recipe's own loss at the service, if the stage has one."""

    training: TrainingClient
    service: ServiceClient
    journal: Journal
    plan: Training
    stop_requested: Callable[[], bool]
    note: Callable[[str], None]
    step: int = 0
    own_loss: LossHandle | None = None

    async def snapshot(self, step: int) -> SamplerSnapshot:
        """Return a snapshot of the weights after ``step``, for one step to sample from.

        If steps overlap, it is saved under a name and journalled before it is used, so that a
        resumed run repeats the interrupted steps with the same weights. Each call returns a new
        client: requests of two steps in one batch of the service would change the last bits of
        each other's logprobs.
        """
        if not max_lag(self.plan):
            client = await self.training.save_weights_and_get_sampling_client(
                record_stability_info=self._recorded
            )
            return SamplerSnapshot(client, self.step)
        return SamplerSnapshot(*await self._after(step, "sampling from"))

    async def past(self, step: int, every: int) -> SamplingClient:
        """Return a client that samples from the weights after the last multiple of ``every`` that
        is no later than ``step``. They are saved and journalled while they are the newest, so that
        a resumed run has the same."""
        client, _ = await self._after(past_step(step, every), "the opponent has")
        return client

    async def _after(self, step: int, use: str) -> tuple[SamplingClient, int]:
        """Return a client that samples from the weights after ``step``, and that step; if they were
        not kept, from the newest ones, which are."""
        saved, instead = self.journal.snapshots(self.plan.name), f"after step {self.step} instead"
        if step in saved:
            try:
                return await self._sampler(saved[step]), step
            except CheckpointError as error:
                self.note(f"{error} {use.capitalize()} the weights {instead}")
        elif step != self.step:
            self.note(f"the weights after step {step} were not kept: {use} those {instead}")
        return await self._sampler(await self._keep()), self.step

    async def _keep(self) -> str:
        """Save and journal the newest weights for sampling; return their path."""
        name, ttl = f"{self.plan.name}-{self.step:06d}", self._ttl(lasting=False)
        path = (await self.training.save_weights_for_sampler(name, ttl_seconds=ttl)).path
        self.journal.add_snapshot(self.plan.name, self.step, path)
        return path

    async def _sampler(self, path: str) -> SamplingClient:
        return await self.service.create_sampling_client(
            model_path=path, record_stability_info=self._recorded
        )

    @property
    def _recorded(self) -> bool:
        """Whether the service has to record what is sampled, for the loss."""
        objective = self.plan.policy_gradient
        return objective is not None and loss_traits(objective.loss).recorded

    async def checkpoint(self, node: NodeContext, inputs: Inputs) -> PendingCheckpoint | None:
        """Start to save the state after a step, without waiting; None if none is wanted."""
        lasting = is_due(self.plan, node.step) or self.stop_requested()
        if not lasting and self.plan.save.rolling is None:
            return None
        return PendingCheckpoint(asyncio.ensure_future(self.save(node.step, lasting)), lasting)

    async def save(self, step: int, lasting: bool = True) -> str:
        """Save weights and optimiser after ``step``; return the path that restores them."""
        name, ttl = f"{self.plan.name}-{step:06d}", self._ttl(lasting)
        return (await self.training.save_state(name, ttl_seconds=ttl, overwrite=True)).path

    def _ttl(self, lasting: bool) -> int | None:
        """Return how long the service may keep a state (seconds); None: for ever.

        What is kept only for a resume is let go after :data:`ROLLING_TTL`, except on this machine,
        where it costs nothing.
        """
        ttl = self.plan.save.ttl_seconds
        if lasting or self.plan.model.service == LOCAL:
            return ttl
        return ROLLING_TTL if ttl is None else min(ttl, ROLLING_TTL)
