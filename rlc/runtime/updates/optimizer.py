"""Optimiser updates: gradients submitted and awaited, and the metrics of the update."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from rlc.algo import ClipRange, changed_share, clip_fraction, drift, forward_kl, learning_rate
from rlc.catalog import LIKELIHOOD, loss_traits, service_loss
from rlc.plan import LossPlan, Training
from rlc.runtime.concurrency import in_thread
from rlc.runtime.updates.batch_values import with_batch_values
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.minibatch import Minibatch
from rlc.service import LossHandle, TrainingClient

if TYPE_CHECKING:
    from tinker import types


@frozen(eq=False)
class PendingGradient:
    """A submitted ``forward_backward``, its datums, and the tokens that were read before it.
    ``taught``: it is that of a teacher's most likely tokens."""

    datums: list[TrainingDatum]
    output: asyncio.Future[types.ForwardBackwardOutput]
    prefill: int = 0
    taught: bool = False


@frozen(eq=False)
class PendingGradients:
    """The gradients of a batch (or of a part of one), submitted in order.

    ``updates`` are the optimiser updates between them; the update after the last gradient is left
    to the ``optim_step`` node.
    """

    submitted: list[PendingGradient]
    updates: list[Awaitable[types.OptimStepResponse]]


@frozen
class UpdateResult:
    """The metrics of a step's updates, how many tokens were trained on, and read before that."""

    metrics: dict[str, float]
    trained: int
    prefill: int = 0


async def submit(
    training: TrainingClient,
    stage: Training,
    step: int,
    minibatches: Sequence[Minibatch],
    own: LossHandle | None = None,
    seed: int = 0,
) -> PendingGradients:
    """Submit the gradients, and an update after each but the last, without waiting for them; those
    of a recipe's ``own`` loss, if there is one. ``seed`` is for what that draws.

    So requests that belong together reach the service together. Only a loss that would pull at the
    prompts waits for a forward pass before each gradient, and one that compares all sequences by
    the trainer's logprobs for a pass before the first.
    """
    loss = service_loss(stage)
    minibatches, read = await with_batch_values(training, loss, minibatches, seed)
    anchors = loss_traits(loss).reaches_prompt
    params = _adam_params(stage, step)
    wired = await in_thread(lambda: [_wired(m.datums, loss) for m in minibatches if not anchors])
    targets = await in_thread(lambda: [[d.to_targets() for d in m.taught] for m in minibatches])
    gradients: list[PendingGradient] = []
    updates: list[Awaitable[types.OptimStepResponse]] = []
    for index, minibatch in enumerate(minibatches):
        if gradients:
            updates.append(training.optim_step(params))
        if datums := minibatch.datums:
            if anchors:
                data = _wired(await _anchored(training, datums), loss)
                read += _length(datums)
            else:
                data = wired[index]
            if own is None:
                answer = training.forward_backward(data, loss.name, minibatch.loss_config or None)
            else:
                answer = training.forward_backward_custom(data, own)
                read += _length(datums) if own.in_client else 0
            gradients.append(_pending(datums, answer, read))
            read = 0
        if minibatch.taught:  # added to the gradient before, by the same update
            answer = training.forward_backward(targets[index], LIKELIHOOD.name)
            gradients.append(_pending(minibatch.taught, answer, taught=True))
    return PendingGradients(gradients, updates)


async def _anchored(
    training: TrainingClient, datums: Sequence[TrainingDatum]
) -> list[TrainingDatum]:
    """The datums with the trainer's own logprobs where nothing is trained on."""
    output = await training.forward(await in_thread(_wired, datums, LIKELIHOOD), LIKELIHOOD.name)
    rows = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
    return [datum.anchored(row) for datum, row in zip(datums, rows, strict=True)]


def _pending(
    datums: list[TrainingDatum],
    answer: Awaitable[types.ForwardBackwardOutput],
    read: int = 0,
    taught: bool = False,
) -> PendingGradient:
    """A gradient under way. What it raises is raised where it is awaited, if it is."""

    def retrieve(output: asyncio.Future[Any]) -> None:
        if not output.cancelled():
            output.exception()

    output = asyncio.ensure_future(answer)
    output.add_done_callback(retrieve)
    return PendingGradient(datums, output, read, taught)


async def finish(
    training: TrainingClient,
    stage: Training,
    step: int,
    parts: Sequence[PendingGradients],
) -> UpdateResult:
    """Submit the last update and wait for all; do nothing if there is no gradient.

    Sampled datums carry their sampler's logprobs, which are compared with the trainer's.
    """
    gradients = [gradient for part in parts for gradient in part.submitted]
    if not gradients:
        return UpdateResult({"optim/skipped": 1.0}, trained=0)
    updates = [update for part in parts for update in part.updates]
    params = _adam_params(stage, step)
    updates.append(training.optim_step(params))
    outputs = await asyncio.gather(*(gradient.output for gradient in gradients))
    responses = [response.metrics or {} for response in await asyncio.gather(*updates)]
    metrics = {"optim/skipped": 0.0, "optim/lr": params.learning_rate}
    for name in dict.fromkeys(name for response in responses for name in response):
        values = [response[name] for response in responses if name in response]
        metrics[f"optim/{name}"] = fmean(values)
    metrics["loss/sum"] = sum(output.metrics["loss:sum"] for output in outputs)
    datums = [datum for gradient in gradients for datum in gradient.datums]
    metrics["optim/datums"] = float(len(datums))
    if (objective := stage.policy_gradient) is not None:
        metrics |= await in_thread(_drift_metrics, objective.loss, gradients, outputs)
    metrics |= await in_thread(_taught_metrics, gradients, outputs)
    return UpdateResult(metrics, _length(datums), sum(gradient.prefill for gradient in gradients))


def _wired(datums: Sequence[TrainingDatum], loss: LossPlan) -> list[types.Datum]:
    return [datum.to_tinker(loss) for datum in datums]


def _length(datums: Sequence[TrainingDatum]) -> int:
    return sum(len(datum.inputs) for datum in datums)


def _taught_metrics(
    gradients: Sequence[PendingGradient], outputs: Sequence[types.ForwardBackwardOutput]
) -> dict[str, float]:
    """Return the mean distance from what the teachers said of their most likely tokens, over the
    positions of which they said something (nats)."""
    distances = list[float]()
    for gradient, output in zip(gradients, outputs, strict=True):
        rows = output.loss_fn_outputs if gradient.taught else ()
        for datum, row in zip(gradient.datums, rows, strict=False):
            said = datum.topk
            assert said is not None
            (places,) = np.nonzero(datum.mask_T & (said.mass_T > 0))
            logprobs_TK = row["logprobs"].to_numpy()[places, :-1]
            distances += forward_kl(said.shares_TK[places], logprobs_TK).tolist()
    return {"teacher/forward_kl": fmean(distances)} if distances else {}


def _drift_metrics(
    loss: LossPlan,
    gradients: Sequence[PendingGradient],
    outputs: Sequence[types.ForwardBackwardOutput],
) -> dict[str, float]:
    """Return how far the trainer's policy is from the sampler's, over the tokens trained on.

    Each datum is compared as it was when its gradient was computed. Those of which a teacher's
    tokens are learnt are compared where there are no others.
    """
    taught = all(gradient.taught for gradient in gradients)
    counted = [taught or not gradient.taught for gradient in gradients]
    datums = [d for one, yes in zip(gradients, counted, strict=True) if yes for d in one.datums]
    replies = [
        r for out, yes in zip(outputs, counted, strict=True) if yes for r in out.loss_fn_outputs
    ]
    trainer_DT = [row["logprobs"].to_numpy() for row in replies]
    if taught:
        trainer_DT = [logprobs_TK[:, -1] for logprobs_TK in trainer_DT]  # of the sampled token
    sampler_DT = [datum.logprobs_T for datum in datums]
    mask_DT = [datum.mask_T for datum in datums]
    seen = drift(sampler_DT, trainer_DT, mask_DT)
    if seen is None:
        return {}
    metrics = {
        "kl/sample_train": seen.k1,
        "kl/sample_train_k2": seen.k2,
        "kl/sample_train_k3": seen.k3,
        "kl/train_sample": seen.reverse,
        "policy/ess": seen.ess,
    }
    traits = loss_traits(loss)
    if traits.clip is not None:
        low, high = (loss.config[traits.config[name]] for name in ("clip_low", "clip_high"))
        clip = ClipRange(low, high, traits.clip, traits.per_sequence)
        advantages_DT = [datum.advantages_T for datum in datums]
        share = clip_fraction(clip, sampler_DT, trainer_DT, advantages_DT, mask_DT)
        metrics["policy/clip_fraction"] = 0.0 if share is None else share
    if loss.program is not None and traits.unbounded is not None:
        rows = [d.sampled_inputs(lp_T) for d, lp_T in zip(datums, trainer_DT, strict=True)]
        metrics["policy/clip_fraction"] = changed_share(loss.program, traits.unbounded, rows) or 0.0
    return metrics


def _adam_params(stage: Training, step: int) -> types.AdamParams:
    """Return the optimiser's settings at a step of a stage."""
    from tinker import types

    adam, schedule = stage.optimizer, stage.optimizer.schedule
    rate = learning_rate(
        schedule.kind, adam.learning_rate, step, stage.steps, schedule.warmup, schedule.floor
    )
    return types.AdamParams(
        learning_rate=rate,
        beta1=adam.beta1,
        beta2=adam.beta2,
        eps=adam.eps,
        weight_decay=adam.weight_decay,
        grad_clip_norm=adam.grad_clip_norm,
    )
