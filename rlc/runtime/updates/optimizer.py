"""Optimiser updates: gradients submitted, then awaited, and what they did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from attrs import frozen

from rlc.algo.kl import sample_train_kl
from rlc.algo.schedules import learning_rate
from rlc.plan.records import AdamPlan, LossPlan
from rlc.runtime.concurrency import in_thread
from rlc.runtime.updates.datums import TrainingDatum
from rlc.runtime.updates.minibatch import Minibatch
from rlc.service.interface import TrainingClient

if TYPE_CHECKING:
    from tinker import types


@frozen(eq=False)
class PendingGradient:
    """A ``forward_backward`` under way, and the datums that went into it."""

    datums: list[TrainingDatum]
    output: asyncio.Future[types.ForwardBackwardOutput]


@frozen(eq=False)
class PendingGradients:
    """The gradients of a batch (or of a part of one), submitted in order.

    ``updates`` are the optimiser updates between them; that of the last gradient is the
    ``optim_step`` node's.
    """

    submitted: list[PendingGradient]
    updates: list[Awaitable[types.OptimStepResponse]]


@frozen
class UpdateResult:
    """What the optimiser did in a step; ``metrics`` is flat. ``trained`` counts tokens sent."""

    metrics: dict[str, float]
    trained: int


def wire_datums(loss: LossPlan, minibatches: Sequence[Minibatch]) -> list[list[types.Datum]]:
    """The datums of each minibatch as the service takes them: pure, and long for a large batch."""
    return [[datum.to_tinker(loss.name) for datum in batch.datums] for batch in minibatches]


def submit(
    training: TrainingClient,
    loss: LossPlan,
    minibatches: Sequence[Minibatch],
    data: Sequence[list[types.Datum]],
    params: types.AdamParams,
) -> PendingGradients:
    """Submit the gradients, and an update after each but the last, without waiting: what
    belongs together reaches the service in the same breath. ``data`` are the
    :func:`wire_datums` of the minibatches."""
    gradients: list[PendingGradient] = []
    updates: list[Awaitable[types.OptimStepResponse]] = []
    for minibatch, datums in zip(minibatches, data, strict=True):
        if gradients:
            updates.append(training.optim_step(params))
        output = asyncio.ensure_future(
            training.forward_backward(datums, loss.name, minibatch.loss_config or None)
        )
        output.add_done_callback(_seen)
        gradients.append(PendingGradient(minibatch.datums, output))
    return PendingGradients(gradients, updates)


def _seen(output: asyncio.Future[Any]) -> None:
    """What has failed is told by who waits for it, if the step comes so far."""
    if not output.cancelled():
        output.exception()


async def finish(
    training: TrainingClient,
    parts: Sequence[PendingGradients],
    params: types.AdamParams,
    sampled: bool = False,
) -> UpdateResult:
    """Submit the last update and await all; nothing is done where there is no gradient.

    ``sampled`` datums carry their sampler's logprobs, which are compared with the trainer's.
    """
    gradients = [gradient for part in parts for gradient in part.submitted]
    if not gradients:
        return UpdateResult({"optim/skipped": 1.0}, trained=0)
    updates = [update for part in parts for update in part.updates]
    updates.append(training.optim_step(params))
    outputs = await asyncio.gather(*(gradient.output for gradient in gradients))
    responses = await asyncio.gather(*updates)
    metrics = {"optim/skipped": 0.0, "optim/lr": params.learning_rate}
    metrics |= _optimizer_metrics(responses)
    metrics["loss/sum"] = sum(output.metrics["loss:sum"] for output in outputs)
    datums = [datum for gradient in gradients for datum in gradient.datums]
    if sampled:
        metrics |= await in_thread(_kl_metrics, datums, outputs)
    return UpdateResult(metrics, trained=sum(len(datum.inputs) for datum in datums))


def adam_params(optimizer: AdamPlan, step: int, steps: int) -> types.AdamParams:
    """The optimiser's settings at a step out of ``steps``."""
    from tinker import types

    plan = optimizer.schedule
    return types.AdamParams(
        learning_rate=learning_rate(
            plan.kind, optimizer.learning_rate, step, steps, plan.warmup, plan.floor
        ),
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        eps=optimizer.eps,
        weight_decay=optimizer.weight_decay,
        grad_clip_norm=optimizer.grad_clip_norm,
    )


def _optimizer_metrics(responses: Sequence[types.OptimStepResponse]) -> dict[str, float]:
    """What the service says of its updates, averaged over those of the step."""
    told = [response.metrics or {} for response in responses]
    return {
        f"optim/{name}": fmean(metrics[name] for metrics in told if name in metrics)
        for name in dict.fromkeys(name for metrics in told for name in metrics)
    }


def _kl_metrics(
    datums: Sequence[TrainingDatum], outputs: Sequence[types.ForwardBackwardOutput]
) -> dict[str, float]:
    """How far the trainer's logprobs are from the sampler's, over the sampled tokens."""
    kl = sample_train_kl(
        [datum.logprobs_T for datum in datums],
        [row["logprobs"].to_numpy() for output in outputs for row in output.loss_fn_outputs],
        [datum.mask_T for datum in datums],
    )
    return {} if kl is None else {"kl/sample_train": kl.k1, "kl/sample_train_k2": kl.k2}
