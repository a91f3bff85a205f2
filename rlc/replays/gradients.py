"""The gradients themselves, taken with the weights that a step began with, and the loss after a
step of each. Only the embedded engine does so, for nothing; it saves in a folder of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from math import fsum
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from attrs import field, frozen

from rlc.algo import Floats
from rlc.catalog import LIKELIHOOD
from rlc.plan import CHECKPOINTS_FOLDER, LOCAL, PolicyGradient, Training
from rlc.replays.outcomes import ObjectiveOutcome
from rlc.replays.recorded import RecordedRun, RecordedStep, ReplayError
from rlc.runtime import (
    Minibatch,
    finish_updates,
    fresh_weights,
    open_loss,
    submit_gradients,
)
from rlc.seeds import derive_seed
from rlc.service import CheckpointStore, ServiceClient, TrainingClient, open_service

_MEAN = "adam_mean/"  # of a state: the moving mean of the gradients, here of a single one


@frozen(eq=False)
class TakenStep:
    """One objective with the weights of the step.

    Attributes:
        gradient: the gradient by each matrix of the adapter, by name, before clipping.
        norm: its length.
        before: the loss with the weights as they were; None if a part of it is not known.
        after: the same after the step that the optimiser takes, with its state of then.
    """

    gradient: Mapping[str, Floats] = field(repr=False)
    norm: float
    before: float | None
    after: float | None


@frozen(eq=False)
class GradientComparison:
    """The gradients of a replay: that of the run, and that of the other objective, if there is one,
    with their ``cosine``; None if there is one, or one of them is 0."""

    steps: tuple[TakenStep, ...]
    cosine: float | None


async def compared_gradients(
    run: RecordedRun, recorded: RecordedStep, outcomes: Sequence[ObjectiveOutcome]
) -> GradientComparison:
    """Take the gradients of the step. Raise ReplayError if its weights are not there."""
    import rlc.service.engine  # noqa: F401 (before anything imports torch)

    stage = outcomes[0].stage
    if stage.model.service != LOCAL:
        raise ReplayError(
            f"`{stage.name}` was trained on `{stage.model.service}`: the gradients themselves are "
            "taken on the embedded engine only",
            "without --gradient the slopes by the tokens' logprobs are compared",
        )
    if any(outcome.batch is None for outcome in outcomes):
        raise ReplayError(
            "the gradient needs the tokens of all episodes of the step, and they were not kept",
            "`rlc run --tokens all` keeps them",
        )
    with TemporaryDirectory() as folder:
        service = open_service(LOCAL, Path(folder))
        steps = [
            await _taken(run, service, Path(folder), outcome, recorded.step) for outcome in outcomes
        ]
    return GradientComparison(tuple(steps), _cosine(steps) if len(steps) > 1 else None)


async def _taken(
    run: RecordedRun, service: ServiceClient, folder: Path, outcome: ObjectiveOutcome, step: int
) -> TakenStep:
    from tinker import types

    stage, batch = outcome.stage, outcome.batch
    assert batch is not None
    own = await open_loss(service, stage, lambda _: None)
    seed = derive_seed(run.plan.seed, "loss", stage.name, step)
    updates = batch.minibatches
    datums = [datum for update in updates for datum in update.datums]
    training = await _opened(run, service, stage, step)
    known = await _losses(training, stage, updates)
    gradient: dict[str, Floats] = {}
    if datums or any(update.taught or update.observed for update in updates):
        for update in _at_once(updates):  # all at the weights of the beginning
            pending = await submit_gradients(training, stage, step, [update], own, seed)
            for one in pending.submitted:
                await one.output
        await training.optim_step(types.AdamParams(learning_rate=0.0, beta1=0.0))
        saved = await training.save_state("gradient", overwrite=True)
        arrays = CheckpointStore(folder).load(saved.path).arrays
        gradient = {
            name.removeprefix(_MEAN): np.asarray(array, np.float64)
            for name, array in arrays.items()
            if name.startswith(_MEAN)
        }
        training = await _opened(run, service, stage, step)
        pending = await submit_gradients(training, stage, step, updates, own, seed)
        await finish_updates(training, stage, step, [pending])
    after = await _losses(training, stage, updates)
    norm = math.sqrt(fsum(float((part**2).sum()) for part in gradient.values()))
    return TakenStep(gradient, norm, known, after)


def _at_once(updates: Sequence[Minibatch]) -> Sequence[Minibatch]:
    """Return updates of one loss as one, in which it compares all of their sequences."""
    config = updates[0].loss_config
    if any(one.loss_config != config for one in updates):
        return updates
    datums = [datum for one in updates for datum in one.datums]
    taught = [datum for one in updates for datum in one.taught]
    observed = [datum for one in updates for datum in one.observed]
    return [Minibatch(datums, config, taught, observed)]


async def _losses(
    training: TrainingClient, stage: Training, updates: Sequence[Minibatch]
) -> float | None:
    """Return the loss of a step with the present weights."""
    if any(update.taught or update.observed for update in updates):
        return None
    loss, values = stage.of(PolicyGradient).loss, list[float]()
    for update in updates:
        if update.datums:
            data = [datum.to_tinker(LIKELIHOOD) for datum in update.datums]
            output = await training.forward(data, LIKELIHOOD.name)
            rows = [np.asarray(o["logprobs"].to_numpy(), float) for o in output.loss_fn_outputs]
            for datum, row in zip(update.datums, rows, strict=True):
                values.append(datum.loss_and_gradient(loss, update.loss_config, row)[0])
    return fsum(values)


async def _opened(
    run: RecordedRun, service: ServiceClient, stage: Training, step: int
) -> TrainingClient:
    """Return the weights that a step began with, and its optimiser."""
    states = run.journal.checkpoints(stage.name)
    if step > 1:
        if step - 1 not in states:
            there = [f"{known + 1:,}" for known in sorted(states) if known < stage.steps]
            first = [] if stage.after is not None and not _last(run, stage.after) else ["1"]
            raise ReplayError(
                f"the weights that step {step} of `{stage.name}` began with were not kept",
                f"those of the steps {', '.join(dict.fromkeys([*first, *there]))} are there; "
                "`save = every(…)` says which are kept",
            )
        load = service.create_training_client_from_state_with_optimizer
        return await load(_file(run, states[step - 1]))
    if stage.after is not None:
        path = _last(run, stage.after)
        if path is None:
            raise ReplayError(f"the weights that `{stage.after}` has left are not there any more")
        return await service.create_training_client_from_state(_file(run, path))
    return await fresh_weights(service, run.plan.seed, stage)


def _last(run: RecordedRun, stage: str) -> str | None:
    states = run.journal.checkpoints(stage)
    return states[max(states)] if states else None


def _file(run: RecordedRun, path: str) -> str:
    return str(CheckpointStore(run.path / CHECKPOINTS_FOLDER).file(path))


def _cosine(steps: Sequence[TakenStep]) -> float | None:
    one, other = steps
    if not (one.norm and other.norm):
        return None
    pairs = (float((g * other.gradient[name]).sum()) for name, g in one.gradient.items())
    return fsum(pairs) / (one.norm * other.norm)
