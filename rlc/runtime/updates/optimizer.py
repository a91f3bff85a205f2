"""Optimiser updates: gradients submitted and awaited, their metrics, and what they trained on."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from attrs import evolve, frozen

from rlc.algo import (
    ClipRange,
    Program,
    TorchFunction,
    batch_values,
    changed_share,
    clip_fraction,
    drift,
    forward_kl,
    learning_rate,
    needs_batch,
    torch_function,
)
from rlc.catalog import LIKELIHOOD, loss_traits, service_loss
from rlc.plan import LossPlan, Training
from rlc.runtime.concurrency import in_thread, mark_seen
from rlc.runtime.journal.episodes import (
    EpisodeKey,
    EpisodeTokens,
    SequenceTokens,
    first_groups,
)
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, Scores, TokenSequence, merged_sequences
from rlc.runtime.updates.datums import EpisodeDatums, FloatArray, Minibatch, TrainingDatum
from rlc.seeds import derive_seed
from rlc.service import LossHandle, ServiceClient, TrainingClient

if TYPE_CHECKING:
    from tinker import types


async def open_loss(
    service: ServiceClient, stage: Training, note: Callable[[str], None]
) -> LossHandle | None:
    """Return a recipe's own loss at the service, or None; raise ServiceError if it is refused."""
    objective = stage.policy_gradient
    if objective is None or (program := objective.loss.program) is None:
        return None
    written = torch_function(program, objective.loss.name, loss_traits(objective.loss).weighted)
    loss = await service.create_custom_loss(*await in_thread(compiled, written))
    if loss.in_client:
        note(
            f"the service has no custom losses: `{objective.loss.name}` is computed here, after a "
            "forward pass of its own, half as much work again"
        )
    return loss


def compiled(written: TorchFunction) -> tuple[Callable[..., Any], dict[str, Literal[0, 1, 2]]]:
    """Return a function, and the ranks of its arguments, for the service to trace."""
    import torch

    scope: dict[str, Any] = {"torch": torch}
    exec(compile(written.source, f"<loss {written.name}>", "exec"), scope)
    return scope[written.name], written.ranks


async def with_batch_values(
    training: TrainingClient, loss: LossPlan, minibatches: Sequence[Minibatch], seed: int
) -> tuple[Sequence[Minibatch], int]:
    """Return the minibatches of a step with the values that their loss computes over all of them,
    and the number of tokens read for it.

    If these depend on the trainer's logprobs, a forward pass before the first update computes them.
    Random numbers depend on ``seed`` and on the names of the sequences, not on their order.
    """
    if loss.program is None or not needs_batch(loss.program):
        return minibatches, 0
    datums = [datum for minibatch in minibatches for datum in minibatch.datums]
    if not datums:
        return minibatches, 0
    trainer_DT: list[FloatArray | None] = [None] * len(datums)
    read = 0
    if loss_traits(loss).forward:
        wired = await in_thread(lambda: [datum.to_tinker(LIKELIHOOD) for datum in datums])
        output = await training.forward(wired, LIKELIHOOD.name)
        trainer_DT = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
        read = sum(len(datum.inputs) for datum in datums)
    rest = iter(await in_thread(with_values_over, loss.program, datums, trainer_DT, seed))
    return [evolve(m, datums=[next(rest) for _ in m.datums]) for m in minibatches], read


def with_values_over(
    program: Program,
    datums: Sequence[TrainingDatum],
    trainer_DT: Sequence[FloatArray | None],
    seed: int,
) -> list[TrainingDatum]:
    """Return the datums of a step with what their loss computes over all of them, given the
    trainer's logprobs of the targets of each, if the loss reads these for it."""
    sequences, orders = [], []
    for datum, trainer_T in zip(datums, trainer_DT, strict=True):
        sequences.append(datum.sampled_inputs(trainer_T))
        stream = np.random.default_rng(derive_seed(seed, *datum.name))
        orders.append(stream.random(datum.sampled))
    found = batch_values(program, sequences, orders)
    return [evolve(datum, batch=known) for datum, known in zip(datums, found, strict=True)]


@frozen(eq=False)
class PendingGradient:
    """A submitted ``forward_backward``, its datums, and the number of tokens read before it.
    ``taught``: it is that of a teacher's top-k tokens; ``observed``: of what comes between
    replies."""

    datums: list[TrainingDatum]
    output: asyncio.Future[types.ForwardBackwardOutput]
    prefill: int = 0
    taught: bool = False
    observed: bool = False

    def outputs(self) -> list[FloatArray]:
        """Return the trainer's logprobs of the targets of each datum, once they are there."""
        rows = [row["logprobs"].to_numpy() for row in self.output.result().loss_fn_outputs]
        return [row[:, -1] for row in rows] if self.taught else rows  # the sampled token is last


@frozen(eq=False)
class PendingGradients:
    """The gradients of a batch or of a part of one, submitted in order, and the updates between
    them. The update after the last gradient is left to the ``optim_step`` node."""

    submitted: list[PendingGradient]
    updates: list[Awaitable[types.OptimStepResponse]]


@frozen
class UpdateResult:
    """The metrics of a step's updates, and the numbers of tokens trained on and read before."""

    metrics: dict[str, float]
    trained: int
    prefill: int = 0


async def submit_gradients(
    training: TrainingClient,
    stage: Training,
    step: int,
    minibatches: Sequence[Minibatch],
    own: LossHandle | None = None,
    seed: int = 0,
) -> PendingGradients:
    """Submit the gradients, and an update after each but the last, without waiting for them, so
    that requests that belong together reach the service together.

    ``own`` is the recipe's own loss, ``seed`` that of its random numbers. Only a loss that would
    pull at the prompts waits for a forward pass before each gradient, and one that compares all
    sequences by the trainer's logprobs for a pass before the first.
    """
    loss = service_loss(stage)
    minibatches, read = await with_batch_values(training, loss, minibatches, seed)
    anchors = loss_traits(loss).reaches_prompt
    params = _adam_params(stage, step)
    wired = await in_thread(lambda: [_wired(m.datums, loss) for m in minibatches if not anchors])
    targets = await in_thread(lambda: [[d.to_targets() for d in m.taught] for m in minibatches])
    observed = await in_thread(lambda: [_wired(m.observed, LIKELIHOOD) for m in minibatches])
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
        if minibatch.observed:
            answer = training.forward_backward(observed[index], LIKELIHOOD.name)
            gradients.append(_pending(minibatch.observed, answer, observed=True))
    return PendingGradients(gradients, updates)


async def _anchored(
    training: TrainingClient, datums: Sequence[TrainingDatum]
) -> list[TrainingDatum]:
    output = await training.forward(await in_thread(_wired, datums, LIKELIHOOD), LIKELIHOOD.name)
    rows = [row["logprobs"].to_numpy() for row in output.loss_fn_outputs]
    return [datum.anchored(row) for datum, row in zip(datums, rows, strict=True)]


def _pending(
    datums: list[TrainingDatum],
    answer: Awaitable[types.ForwardBackwardOutput],
    read: int = 0,
    **what: bool,
) -> PendingGradient:
    output = asyncio.ensure_future(answer)
    output.add_done_callback(mark_seen)
    return PendingGradient(datums, output, read, **what)


async def finish_updates(
    training: TrainingClient, stage: Training, step: int, parts: Sequence[PendingGradients]
) -> UpdateResult:
    """Submit the last update and wait for all; do nothing if there is no gradient."""
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
        metrics |= await in_thread(_drift_metrics, objective.loss, gradients)
    metrics |= await in_thread(_taught_metrics, gradients, outputs)
    metrics |= await in_thread(_observed_metrics, gradients)
    return UpdateResult(metrics, _length(datums), sum(gradient.prefill for gradient in gradients))


def _wired(datums: Sequence[TrainingDatum], loss: LossPlan) -> list[types.Datum]:
    return [datum.to_tinker(loss) for datum in datums]


def _length(datums: Sequence[TrainingDatum]) -> int:
    return sum(len(datum.inputs) for datum in datums)


def _taught_metrics(
    gradients: Sequence[PendingGradient], outputs: Sequence[types.ForwardBackwardOutput]
) -> dict[str, float]:
    """Return the mean distance from the shares of the teachers' top-k tokens (nats)."""
    distances = list[float]()
    for gradient, output in zip(gradients, outputs, strict=True):
        rows = output.loss_fn_outputs if gradient.taught else ()
        for datum, row in zip(gradient.datums, rows, strict=False):
            scores = datum.topk
            assert scores is not None
            (places,) = np.nonzero(datum.mask_T & (scores.mass_T > 0))
            logprobs_TK = row["logprobs"].to_numpy()[places, :-1]
            distances += forward_kl(scores.shares_TK[places], logprobs_TK).tolist()
    return {"teacher/forward_kl": fmean(distances)} if distances else {}


def _observed_metrics(gradients: Sequence[PendingGradient]) -> dict[str, float]:
    """Return the mean negative log-likelihood of what comes between replies (nats)."""
    logprobs = [
        logprobs_T[datum.mask_T]
        for gradient in gradients
        if gradient.observed
        for datum, logprobs_T in zip(gradient.datums, gradient.outputs(), strict=True)
    ]
    return {"observations/nll": float(-np.concatenate(logprobs).mean())} if logprobs else {}


def _drift_metrics(loss: LossPlan, gradients: Sequence[PendingGradient]) -> dict[str, float]:
    """Return those of :func:`drift_metrics`, at the time of each gradient; of datums that learn a
    teacher's tokens only without others."""
    gradients = [gradient for gradient in gradients if not gradient.observed]
    counted = [gradient for gradient in gradients if not gradient.taught] or gradients
    datums = [datum for gradient in counted for datum in gradient.datums]
    return drift_metrics(loss, datums, [row for one in counted for row in one.outputs()])


def drift_metrics(
    loss: LossPlan, datums: Sequence[TrainingDatum], trainer_DT: Sequence[FloatArray]
) -> dict[str, float]:
    """Return the distance of the trainer's policy from the sampler's over the tokens trained on,
    and the share that the loss clips, given the trainer's logprobs of the targets of each datum."""
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


def credited_tokens(
    rollouts: Sequence[Rollout],
    credited: Collection[int],
    batches: Iterable[Sequence[EpisodeDatums]],
    parts: Iterable[PendingGradients],
    scored: Mapping[str, Mapping[int, Sequence[Scores]]],
    most: int | None = None,
) -> list[EpisodeTokens]:
    """Return the tokens of the rollouts of a step whose ids are among the ``credited``, in order,
    those of the first groups if there are more than ``most``.

    ``parts`` are the gradients of the step, which are done. What took part in none of them has no
    logprobs of the trainer: a turn that was not chosen, an episode that was left out, a sequence
    without an advantage other than 0. ``scored`` has the scores of other models, by scorer and id.
    """
    trained: dict[tuple[str | int, ...], tuple[TrainingDatum, FloatArray]] = {}
    gradients = [one for part in parts for one in part.submitted if not one.observed]
    # A datum in two gradients has its advantages in the one that learns no teacher's tokens.
    for gradient in sorted(gradients, key=lambda gradient: gradient.taught):
        for datum, row in zip(gradient.datums, gradient.outputs(), strict=True):
            trained.setdefault(datum.name, (datum, row))
    made = {
        (id(one.rollout), datum.sequence): datum.name
        for episodes in batches
        for one in episodes
        for datum in one.datums
    }
    replies: Counter[EpisodeKey] = Counter()
    played = list[tuple[EpisodeKey, Rollout]]()
    for rollout in rollouts:
        first = EpisodeKey(rollout.env, rollout.task, rollout.member, rollout.role)
        played.append((evolve(first, reply=replies[first]), rollout))
        replies[first] += 1
    there = [EpisodeTokens(key, ()) for key, one in played if id(one) in credited and one.turns]
    chosen, found = {one.key for one in first_groups(there, most)}, []
    for key, rollout in played:
        if key not in chosen:
            continue
        sequences = list[SequenceTokens]()
        for at, sequence in enumerate(merged_sequences(rollout.turns)):
            name = made.get((id(rollout), at))
            by = {scorer: of[id(rollout)][at] for scorer, of in scored.items() if id(rollout) in of}
            sequences.append(_written(sequence, trained.get(name) if name else None, by))
        if sequences:
            found.append(EpisodeTokens(key, sequences))
    return found


def _written(
    sequence: TokenSequence,
    trained: tuple[TrainingDatum, FloatArray] | None,
    scored: Mapping[str, Scores],
) -> SequenceTokens:
    """Return a sequence for the file; ``trained`` is its datum in a gradient, with the trainer's
    logprobs."""
    sampled_T = np.asarray(sequence.turns[1:], np.int64) != NOT_SAMPLED
    trainer_S, advantages_S = np.full(int(sampled_T.sum()), np.nan), np.zeros(int(sampled_T.sum()))
    weight: float | None = None
    if trained is not None:
        datum, trainer_T = trained
        mask_T = np.zeros(len(sampled_T), np.bool_)
        mask_T[: len(datum.mask_T)] = datum.mask_T  # it may be trimmed
        trainer_S[mask_T[sampled_T]] = trainer_T[datum.mask_T]
        advantages_S[mask_T[sampled_T]] = (datum.advantages_T / datum.folded)[datum.mask_T]
        weight = datum.weight * datum.folded
    known = {scorer: scores.at(np.flatnonzero(sampled_T)) for scorer, scores in scored.items()}
    topk = next((one for one in known.values() if one.tokens_TK.shape[1]), None)
    return SequenceTokens(
        sequence.tokens,
        [(reply.turn, max(reply.begin, 1), reply.end) for reply in sequence.replies.values()],
        np.asarray(sequence.logprobs[1:], np.float64)[sampled_T].tolist(),
        trainer_S.tolist(),
        advantages_S.tolist(),
        weight,
        {scorer: scores.logprobs_T.tolist() for scorer, scores in known.items()},
        None
        if topk is None
        else (topk.tokens_TK.tolist(), topk.shares_TK.tolist(), topk.mass_T.tolist()),
    )
