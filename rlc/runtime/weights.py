"""The weights of a stage: where they come from, snapshots to sample from, states to resume from.

The state after each step is journalled once the service has it, and deleted when newer ones are
safe. It may still be on its way while the next step samples, but is journalled before that step
changes the weights. So a process that dies loses its running step and at most the one before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial

from attrs import define, field, frozen

from rlc.catalog import find_weights, is_run_weights, loss_traits
from rlc.data import best_key
from rlc.plan import ModelPlan, SavePlan, StagePlan, Training
from rlc.runtime.concurrency import cancel_all, in_thread
from rlc.runtime.graph import Inputs, NodeContext
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import score
from rlc.runtime.records import RunError
from rlc.seeds import derive_seed
from rlc.service import (
    CheckpointError,
    LossHandle,
    SamplingClient,
    ServiceClient,
    ServiceError,
    TrainingClient,
    UndeletableError,
)

ROLLING_TTL = 7 * 24 * 3600  # seconds that a service keeps the newest state of a run that ended
_GRACE = 5.0  # seconds that a failing run waits for a state that is being saved


@frozen(eq=False)
class PendingCheckpoint:
    """A state that is being saved; one that is not ``lasting`` only until a newer one is safe."""

    path: Awaitable[str]
    lasting: bool


def max_lag(stage: Training) -> int:
    """Return the largest staleness of a stage's rollouts."""
    return 0 if stage.rollouts is None else stage.rollouts.overlap.max_staleness


def is_due(stage: Training, step: int) -> bool:
    """Return whether the plan has a lasting checkpoint after ``step``."""
    every = stage.save.every
    return step == stage.steps or (every is not None and step % every == 0)


def is_scored(stage: Training, step: int) -> bool:
    """Return whether the held-out data of a stage is scored after ``step``."""
    return step == stage.steps or (stage.every is not None and step % stage.every == 0)


def kept_states(
    save: SavePlan, saved: Sequence[int], due: Sequence[int], best: int | None
) -> set[int]:
    """Return the steps whose states are kept: the ``rolling`` newest of those ``saved``, the
    ``keep`` newest of those ``due``, both in order, and the best one."""
    return {*saved[-(save.rolling or 1) :], *due[-save.keep :], *([] if best is None else [best])}


def kept_snapshots(
    snapshots: Collection[int],
    states: Collection[int],
    done: int,
    lag: int,
    pasts: Collection[int] = (),
) -> set[int]:
    """Return the steps whose weights for sampling are kept: those that steps after ``done``, or
    after a return to one of ``states``, sample from, or play against, as the ``pasts`` that are
    renewed after so many steps."""
    opponents = {
        past_step(step, every)
        for every in pasts
        for last in (done, *states)
        for step in range(max(0, last - lag), last + 1)
    }
    return (opponents & {*snapshots}) | {
        step
        for step in snapshots
        if step >= done - lag or any(state - lag <= step < state for state in states)
    }


def past_step(step: int, every: int) -> int:
    """Return the last step until ``step`` after which the past of a stage is renewed."""
    return step // every * every


def pasts_of(stage: Training) -> tuple[int, ...]:
    """Return the intervals at which the past opponents of a stage are renewed."""
    envs = () if stage.rollouts is None else stage.rollouts.envs
    pasts = (env.play.past.every for env in envs if env.play is not None and env.play.past)
    return tuple(sorted(set(pasts)))


@define(eq=False)
class CheckpointKeeper:
    """Journals the states of one stage and deletes those that are not needed any more."""

    stage: Training
    journal: Journal
    service: ServiceClient
    note: Callable[[str], None]
    _task: asyncio.Task[None] | None = field(default=None, init=False)
    _said_that_all_stay: bool = field(default=False, init=False)

    def keep(self, step: int, pending: PendingCheckpoint | None) -> None:
        """Journal the state after a finished step in a task, once the service has it."""

        async def journal() -> None:
            if pending is not None:
                self.journal.add_checkpoint(self.stage.name, step, await pending.path)
            await self._delete_unneeded(step)

        self._task = asyncio.create_task(journal())

    async def settle(self) -> None:
        """Wait until the state after the last step is safe; raise the error of its saving."""
        if self._task is not None:
            await self._task

    async def abandon(self) -> None:
        """Wait a moment for the last state of a failing run, and raise nothing."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_GRACE)
            await cancel_all([self._task])

    async def _delete_unneeded(self, done: int) -> None:
        """Delete old states and snapshots; what cannot be deleted is tried again after a step."""
        name, journal, save = self.stage.name, self.journal, self.stage.save
        saved = journal.checkpoints(name)
        due, best = [step for step in saved if is_due(self.stage, step)], None
        if save.best and due:  # of equals the first
            steps = filter(None, (journal.step(name, step) for step in due))
            best = max(steps, key=lambda stored: score(self.stage, stored.metrics)).step
            journal.set_meta(**{best_key(name): str(best)})
        states = kept_states(save, list(saved), due, best)
        for step, path in saved.items():
            if step not in states and await self._delete(path):
                journal.drop_checkpoint(name, step)
        snapshots = journal.snapshots(name)
        kept = kept_snapshots(snapshots, states, done, max_lag(self.stage), pasts_of(self.stage))
        for step, path in snapshots.items():
            if step not in kept and await self._delete(path):
                journal.drop_snapshot(name, step)

    async def _delete(self, path: str) -> bool:
        if any(path in taken.foreign for taken in self.journal.taken()):
            return True  # it stays that of the run which has made it
        try:
            await self.service.delete_checkpoint(path)
        except CheckpointError:
            return True  # deleted already, by a process that was killed before it said so
        except UndeletableError as error:
            if not self._said_that_all_stay:
                self.note(f"{error}: those that are not needed any more stay there")
                self._said_that_all_stay = True
            return True
        except ServiceError as error:
            self.note(f"{path} is not deleted yet: {error}")
            return False
        return True


class LostCheckpointError(RunError):
    """The newest checkpoint of a stage is unusable; it has been removed from the journal."""


async def open_weights(
    service: ServiceClient, folder: RunFolder, stage: StagePlan, note: Callable[[str], None]
) -> TrainingClient:
    """Return the weights that a stage starts from: its own newest checkpoint, with the state of the
    optimiser; else the last one of the stage before; else those that the model names, or new ones.

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
    return await fresh_weights(service, folder.plan.seed, stage, metadata)


async def fresh_weights(
    service: ServiceClient,
    seed: int,
    stage: StagePlan,
    metadata: dict[str, str] | None = None,
) -> TrainingClient:
    """Return the weights that the model of a stage names, or new ones, under the seed of a run."""
    model = stage.model
    if model.weights is not None:
        return await open_saved(service, model, metadata, stage.trains and model.with_optimizer)
    return await service.create_lora_training_client(
        model.base,
        rank=model.lora_rank,
        seed=derive_seed(seed, "lora", model.name) % 2**31,
        train_mlp=model.train_mlp,
        train_attn=model.train_attn,
        train_unembed=model.train_unembed,
        user_metadata=metadata,
    )


async def open_saved(
    service: ServiceClient,
    model: ModelPlan,
    metadata: dict[str, str] | None = None,
    with_optimizer: bool = False,
) -> TrainingClient:
    """Return the weights that a model names, or raise WeightsError or ServiceError."""
    name = model.weights
    assert name is not None
    if is_run_weights(name):
        found = await in_thread(find_weights, name)
        if found.is_adapter:
            adapter = service.create_training_client_from_adapter
            return await adapter(found.place, model.base, user_metadata=metadata)
        name = found.place
    load = service.create_training_client_from_state
    if with_optimizer:
        load = service.create_training_client_from_state_with_optimizer
    return await load(name, user_metadata=metadata)


async def open_sampler(service: ServiceClient, model: ModelPlan) -> SamplingClient:
    """Return a client that samples from a model with its declared weights."""
    if model.weights is None:
        return await service.create_sampling_client(base_model=model.base)
    if "/sampler_weights/" in model.weights:
        return await service.create_sampling_client(model_path=model.weights)
    training = await open_saved(service, model)
    return await training.save_weights_and_get_sampling_client()


async def open_stage(service: ServiceClient, folder: RunFolder, stage: str) -> SamplingClient:
    """Return a client that samples from the weights that a stage has left."""
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
        if not older and any(one.stage == stage for one in folder.journal.taken()):
            _forget_taken(folder.journal, stage)
            raise LostCheckpointError(
                f"{error} It was another run's: `{stage}` is computed anew"
            ) from error
        if not older:
            raise RunError(
                f"{error} It is the only one that `{stage}` has",
                "put it back from a backup, or start a new run",
            ) from error
        folder.journal.drop_checkpoint(stage, newest)
        raise LostCheckpointError(
            f"{error} Going on from step {older[-1]} of `{stage}`: what came after it is done again"
        ) from error


def _forget_taken(journal: Journal, stage: str) -> None:
    """Drop the states of a stage that another run has made, and of all others that stay that run's,
    which may go on from it."""
    for one in journal.taken():
        states = journal.checkpoints(one.stage)
        if one.stage == stage or {*states.values()} <= {*one.foreign}:
            for step in states:
                journal.drop_checkpoint(one.stage, step)


@frozen
class SamplerSnapshot:
    """A sampling client on the weights after ``step``, and on ``pasts`` by their intervals."""

    client: SamplingClient
    step: int
    pasts: Mapping[int, SamplingClient] = field(factory=dict)


@define(eq=False)
class StageWeights:
    """The adapter that a stage trains. ``step`` is that of the last update, ``own_loss`` a recipe's
    own loss at the service."""

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

        If steps overlap, it is saved under a name and journalled first, so that a resumed run
        repeats the interrupted steps with the same weights. Each call returns a new client: two
        steps in one batch of the service would change the last bits of each other's logprobs.
        """
        if not max_lag(self.plan):
            client = await self.training.save_weights_and_get_sampling_client(
                record_stability_info=self._recorded
            )
            return SamplerSnapshot(client, self.step)
        return SamplerSnapshot(*await self._after(step, "sampling from"))

    async def past(self, step: int, every: int) -> SamplingClient:
        """Return a client on the weights after the last multiple of ``every`` up to ``step``."""
        client, _ = await self._after(past_step(step, every), "the opponent has")
        return client

    async def _after(self, step: int, use: str) -> tuple[SamplingClient, int]:
        """Return a client on the weights after ``step``, or on the newest, and their step."""
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
        """Start to save the state after a step, without waiting; None if none is due."""
        lasting = is_due(self.plan, node.step) or self.stop_requested()
        if not lasting and self.plan.save.rolling is None:
            return None
        return PendingCheckpoint(asyncio.ensure_future(self.save(node.step, lasting)), lasting)

    async def save(self, step: int, lasting: bool = True) -> str:
        """Save weights and optimiser after ``step``; return the path that restores them."""
        name, ttl = f"{self.plan.name}-{step:06d}", self._ttl(lasting)
        return (await self.training.save_state(name, ttl_seconds=ttl, overwrite=True)).path

    def _ttl(self, lasting: bool) -> int | None:
        """Return how long the service may keep a state (seconds); None: for ever. One that is only
        for a resume has :data:`ROLLING_TTL`, except on this machine, where it costs nothing."""
        ttl = self.plan.save.ttl_seconds
        if lasting or not self.plan.model.hosted:
            return ttl
        return ROLLING_TTL if ttl is None else min(ttl, ROLLING_TTL)
