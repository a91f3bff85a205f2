"""What a step trained on, token by token, as ``tokens.bin`` keeps it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from attrs import frozen

from rlc.runtime.journal.tokens import EpisodeKey, EpisodeTokens, SequenceTokens
from rlc.runtime.records import Rollout
from rlc.runtime.updates.datums import FloatArray, TrainingDatum
from rlc.runtime.updates.minibatch import EpisodeDatums
from rlc.runtime.updates.optimizer import PendingGradient, PendingGradients


@frozen(eq=False)
class _TrainedDatum:
    """What became of a datum in its update, for each of its tokens that was trained on."""

    trainer_S: list[float]
    advantages_S: list[float]
    weight: float | None


def trained_tokens(
    rollouts: Sequence[Rollout],
    batches: Iterable[Sequence[EpisodeDatums]],
    parts: Iterable[PendingGradients],
) -> list[EpisodeTokens]:
    """Return the tokens of the rollouts that a step has trained on, in their order.

    ``parts`` are the gradients of the step, which are done. A sequence that took part in none of
    them, because none of its advantages was other than 0, is there without the trainer's logprobs.
    """
    trained: dict[tuple[str | int, ...], _TrainedDatum] = {}
    gradients = [gradient for part in parts for gradient in part.submitted]
    # What is taught too, of a teacher's tokens, has its advantages where it is trained.
    for gradient in sorted(gradients, key=lambda gradient: gradient.taught):
        for datum, trainer_T in _answered(gradient):
            mask_T = datum.mask_T
            weight, advantages_T = datum.weight * datum.folded, datum.advantages_T / datum.folded
            row = _TrainedDatum(trainer_T[mask_T].tolist(), advantages_T[mask_T].tolist(), weight)
            trained.setdefault(datum.name, row)
    datums = {id(one.rollout): one.datums for episodes in batches for one in episodes}
    replies: Counter[EpisodeKey] = Counter()
    found = []
    for rollout in rollouts:
        one = EpisodeKey(rollout.env, rollout.task, rollout.member, rollout.role)
        key = EpisodeKey(rollout.env, rollout.task, rollout.member, rollout.role, replies[one])
        replies[one] += 1
        if id(rollout) in datums:
            sequences = [_sequence(d, trained.get(d.name)) for d in datums[id(rollout)]]
            found.append(EpisodeTokens(key, sequences))
    return found


def _answered(gradient: PendingGradient) -> Iterable[tuple[TrainingDatum, FloatArray]]:
    """Yield each datum of a gradient with the trainer's logprobs of its targets."""
    outputs = gradient.output.result().loss_fn_outputs
    for datum, row in zip(gradient.datums, outputs, strict=True):
        logprobs = row["logprobs"].to_numpy()
        yield datum, logprobs[:, -1] if gradient.taught else logprobs


def _sequence(datum: TrainingDatum, trained: _TrainedDatum | None) -> SequenceTokens:
    count = datum.sampled
    trained = trained or _TrainedDatum([math.nan] * count, [0.0] * count, None)
    return SequenceTokens(
        tokens=[*datum.inputs, int(datum.targets_T[-1])],
        spans=[(reply.turn, reply.begin, reply.end) for reply in datum.replies],
        logprobs_S=datum.logprobs_T[datum.mask_T].tolist(),
        trainer_S=trained.trainer_S,
        advantages_S=trained.advantages_S,
        weight=trained.weight,
    )
