"""From rollouts and advantages to what each optimiser update is trained on.

Turns whose prompt extends the tokens before it are merged into one sequence, so an episode of a
chat is one datum. Targets are the inputs shifted by one; only sampled tokens carry an advantage.

Then the scores of other models are added to the advantages; the batch is split into updates, the
members of a group together; in each update the aggregation's weights are folded into the
advantages; sequences that could not change anything are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from rlc.algo import (
    FIRST,
    MASK,
    RATIO_MASK,
    SAMPLED,
    WEIGHT,
    Program,
    after_batch,
    aggregate_weights,
    builtin_loss_and_grad,
    kl_penalty,
    loss_and_grad,
)
from rlc.catalog import can_weigh, loss_traits, service_settings, teacher_traits
from rlc.chat import NO_CHUNKS, Chunks, model_input
from rlc.plan import (
    SCORERS,
    AggregatePlan,
    KlPlan,
    LossPlan,
    PolicyGradient,
    TeacherPlan,
    teacher_of,
)
from rlc.runtime.records import Rollout, RunError, Turn, grouped
from rlc.runtime.rollouts.tokens import (
    NOT_SAMPLED,
    ReplySpan,
    Scores,
    TokenSequence,
    merged_sequences,
)

if TYPE_CHECKING:
    from tinker import types


FloatArray = npt.NDArray[np.float64]


@frozen(eq=False)
class TrainingDatum:
    """One sequence, already shifted: position ``t`` predicts ``targets_T[t]``. ``sequence`` is its
    place among those of the episode.

    It does so from the inputs up to ``t``, with the marks of ``chunks``. ``mask_T`` marks sampled
    targets; ``scored`` has the targets' logprobs under other models, ``reference`` or ``teacher``,
    NaN where unknown; ``topk`` the scores of a teacher with its top-k tokens. ``replies`` are those
    that are trained on. ``weight`` is that of the sequence, if it is not folded into the
    advantages; ``folded`` the weight that is. ``name`` is unique in the step; ``batch`` has the
    values of the loss over all sequences of the step, a number or one for each sampled token.
    ``observed_T`` marks targets between replies, where the reply before them is trained on.
    """

    inputs: list[int]
    targets_T: npt.NDArray[np.int64]
    logprobs_T: FloatArray
    advantages_T: FloatArray
    mask_T: npt.NDArray[np.bool_]
    scored: Mapping[str, FloatArray] = field(factory=dict)
    topk: Scores | None = None
    chunks: Chunks = NO_CHUNKS
    replies: tuple[ReplySpan, ...] = ()
    weight: float = 1.0
    folded: float = 1.0
    name: tuple[str | int, ...] = ()
    batch: Mapping[str, float | FloatArray] = field(factory=dict)
    observed_T: npt.NDArray[np.bool_] = field(factory=lambda: np.zeros(0, np.bool_))
    sequence: int = 0

    @property
    def sampled(self) -> int:
        """The number of tokens that are trained on."""
        return int(self.mask_T.sum())

    @property
    def weighed(self) -> float:
        """The sum of the weights of tokens that are trained on."""
        return float(self.advantages_T.sum())

    @property
    def ref(self) -> FloatArray | None:
        """The logprobs that a recipe's own loss reads as `ref`, the sampler's where unknown."""
        read_T = next((self.scored[scorer] for scorer in SCORERS if scorer in self.scored), None)
        return None if read_T is None else np.where(np.isnan(read_T), self.logprobs_T, read_T)

    def trimmed(self) -> TrainingDatum:
        """Return the datum up to the last token that is trained on."""
        end = int(np.flatnonzero(self.mask_T)[-1]) + 1
        return evolve(
            self,
            inputs=self.inputs[:end],
            targets_T=self.targets_T[:end],
            logprobs_T=self.logprobs_T[:end],
            advantages_T=self.advantages_T[:end],
            mask_T=self.mask_T[:end],
            scored={scorer: logprobs_T[:end] for scorer, logprobs_T in self.scored.items()},
            topk=self.topk and self.topk.at(slice(end)),
            observed_T=self.observed_T[:end],
        )

    def observing(self, weight: float) -> TrainingDatum:
        """Return the datum that learns what comes between replies instead, each token with a
        weight."""
        weights_T = np.where(self.observed_T, weight, 0.0)
        return evolve(self, advantages_T=weights_T, mask_T=self.observed_T).trimmed()

    def anchored(self, trainer_logprobs_T: npt.NDArray[Any]) -> TrainingDatum:
        """Return the datum with the trainer's own logprobs where nothing is trained on. A pull to
        the sampler's logprobs, which are unknown there, then has no gradient."""
        return evolve(self, logprobs_T=np.where(self.mask_T, self.logprobs_T, trainer_logprobs_T))

    def _inputs(self, loss: LossPlan) -> dict[str, Any]:
        """Return what a loss of the service reads. One without a ratio takes the advantages as
        weights."""
        traits = loss_traits(loss)
        floats: dict[str, Any] = {"weights": self.advantages_T}
        if traits.sampler_logprobs:
            floats = {"logprobs": self.logprobs_T, "advantages": self.advantages_T}
        if traits.per_sequence:  # which tokens the ratio of the sequence is taken over
            floats[RATIO_MASK] = self.mask_T
        return floats

    def loss_and_gradient(
        self, loss: LossPlan, config: Mapping[str, float], trainer_T: FloatArray
    ) -> tuple[float, FloatArray]:
        """Return the loss of the datum in float64, and its gradient by the trainer's logprobs of
        the targets, shape (T,); what these are where nothing was sampled has no effect.

        Raise AlgorithmError for a loss that is not finite.
        """
        if loss.program is not None:
            weight = self.weight if loss_traits(loss).weighted else 1.0
            columns = self.sampled_inputs(trainer_T)
            value, gradient_S = loss_and_grad(loss.program, columns, weights=weight)
            gradient_T = np.zeros(len(self.mask_T))
            gradient_T[self.mask_T] = gradient_S
            return value, gradient_T
        floats = self._inputs(loss)
        if loss_traits(loss).recorded:  # the service knows them from the provenance
            floats[SAMPLED] = self.mask_T
        known = service_settings(loss.name) | dict(config)
        settings = {key: value for key, value in known.items() if value is not None}
        logprobs_T = np.where(self.mask_T, trainer_T, self.logprobs_T)
        return builtin_loss_and_grad(loss.name, settings, logprobs_T, floats)

    def to_tinker(self, loss: LossPlan) -> types.Datum:
        """Return the datum for a loss."""
        from tinker import types

        traits = loss_traits(loss)
        if loss.program is not None:
            floats = self._read_by(loss.program, traits.weighted)
        else:
            floats = self._inputs(loss)
        arrays = {key: np.asarray(array, dtype=np.float32) for key, array in floats.items()}
        datum = types.Datum(
            model_input=model_input(self.inputs, self.chunks),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(self.targets_T),
                **{key: types.TensorData.from_numpy(array) for key, array in arrays.items()},
            },
        )
        if not traits.recorded:
            return datum
        length = len(self.inputs)
        return datum.with_provenance(self._spans(0, length), self._spans(1, length + 1))

    def to_targets(self) -> types.Datum:
        """Return the datum of which cross-entropy learns the shares of a teacher's top-k tokens,
        each times ``weight``. The sampled token is the last target, with a weight of 0, so that the
        trainer returns its logprob too."""
        from tinker import types

        scores = self.topk
        assert scores is not None
        zeros_T = np.zeros(len(self.targets_T))
        tokens_TK = np.column_stack([scores.tokens_TK, self.targets_T])
        weights_TK = np.column_stack([self.weight * scores.shares_TK, zeros_T])
        weights_TK[~self.mask_T] = 0.0
        return types.Datum(
            model_input=model_input(self.inputs, self.chunks),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(tokens_TK),
                "weights": types.TensorData.from_numpy(weights_TK.astype(np.float32)),
            },
        )

    def sampled_inputs(self, trainer_T: FloatArray | None) -> dict[str, Any]:
        """Return the inputs of a recipe's own loss, each of shape (S,), and its batch values."""
        rows = {
            "logp": trainer_T,
            "logq": self.logprobs_T,
            "adv": self.advantages_T,
            "ref": self.ref,
        }
        read = {key: row_T[self.mask_T] for key, row_T in rows.items() if row_T is not None}
        return {**read, **self.batch}

    def _read_by(self, program: Program, weighted: bool) -> dict[str, Any]:
        program, ref_T = after_batch(program), self.ref
        if ref_T is None and "ref" in program.inputs:
            raise RunError("a sequence has no logprobs of the reference that the loss reads")
        known = {"logq": self.logprobs_T, "adv": self.advantages_T, "ref": ref_T}
        first = int(np.argmax(self.mask_T))
        read: dict[str, Any] = {
            key: np.where(self.mask_T, array_T, array_T[first])
            for key, array_T in known.items()
            if array_T is not None and key in program.inputs
        }
        for key, value in self.batch.items():
            if key in program.inputs:
                read[key] = value
                if isinstance(value, np.ndarray):
                    read[key] = np.full(len(self.mask_T), value[0])
                    read[key][self.mask_T] = value
        read |= {MASK: self.mask_T, FIRST: np.arange(len(self.mask_T)) == first}
        return read | ({WEIGHT: self.weight} if weighted else {})

    def _spans(self, first: int, end: int) -> types.ProvenanceSpans:
        """Return the provenance of the tokens ``[first, end)`` of the sequence: a sampled span for
        each reply that is trained on, and one for its prompt, earlier replies included."""
        from tinker import types

        spans: types.ProvenanceSpans = []
        at = first
        for reply in self.replies:
            begin, stop = max(reply.begin, first), min(reply.end, end)
            name = {"sequence_id": reply.sequence_id}
            if begin > at:
                spans.append(types.PromptProvenanceSpan(**name, offset=at, length=begin - at))
            if stop > begin:
                offset, length = begin - reply.begin, stop - begin
                spans.append(types.SampledProvenanceSpan(**name, offset=offset, length=length))
            at = stop
        return spans


def episode_datums(
    turns: Sequence[Turn],
    advantages_T: FloatArray,
    chosen_T: npt.NDArray[np.bool_],
    scored: Mapping[str, Sequence[Scores]] | None = None,
    of_tokens_A: FloatArray | None = None,
) -> list[TrainingDatum]:
    """Return the datums of one episode that have a token to train on.

    ``advantages_T`` and ``chosen_T`` have one value a turn; a turn that is not chosen is context
    only. ``scored`` has the scores of each of :func:`merged_sequences` by each scorer.
    ``of_tokens_A`` has the advantages of the tokens of all turns, where these differ.
    """
    datums, ends_T = [], np.cumsum([len(turn.tokens) for turn in turns])
    for index, sequence in enumerate(merged_sequences(turns)):
        scores = {scorer: scores_S[index] for scorer, scores_S in (scored or {}).items()}
        datum = evolve(shifted(sequence, advantages_T, chosen_T, scores), sequence=index)
        if of_tokens_A is not None:
            own_T = _of_sequence(sequence, of_tokens_A, ends_T)
            datum = evolve(datum, advantages_T=np.where(datum.mask_T, own_T, 0.0))
        datums.append(datum)
    return [datum for datum in datums if datum.mask_T.any()]


def _of_sequence(sequence: TokenSequence, of_tokens_A: FloatArray, ends_T: Any) -> FloatArray:
    """Return what the tokens of all turns have, of which each ends at ``ends_T``, for the targets
    of a sequence; 0 for those that were not sampled."""
    own_T = np.zeros(len(sequence.tokens) - 1)
    for turn, reply in sequence.replies.items():
        count = reply.end - max(reply.begin, 1)  # nothing predicts a sequence's first token
        if count > 0:
            own_T[reply.end - 1 - count : reply.end - 1] = of_tokens_A[
                ends_T[turn] - count : ends_T[turn]
            ]
    return own_T


def shifted(
    sequence: TokenSequence,
    advantages_T: FloatArray,
    chosen_T: npt.NDArray[np.bool_],
    scored: Mapping[str, Scores] | None = None,
) -> TrainingDatum:
    """Return one sequence as a datum; the arguments are those of :func:`episode_datums`."""
    scored = scored or {}
    turn_T = np.asarray(sequence.turns[1:], dtype=np.int64)
    sampled_T = turn_T != NOT_SAMPLED
    mask_T = sampled_T & chosen_T[turn_T]
    before_T = np.maximum.accumulate(turn_T)  # the reply that is there already, if any
    after_T = ~sampled_T & (before_T != NOT_SAMPLED) & chosen_T[before_T]
    logprobs_T = np.asarray(sequence.logprobs[1:], dtype=np.float64)
    return TrainingDatum(
        inputs=sequence.tokens[:-1],
        targets_T=np.maximum(np.asarray(sequence.tokens[1:], dtype=np.int64), 0),  # no marks
        logprobs_T=np.where(mask_T, logprobs_T, 0.0),
        advantages_T=np.where(mask_T, advantages_T[turn_T], 0.0),
        mask_T=mask_T,
        scored={scorer: scores.logprobs_T for scorer, scores in scored.items()},
        topk=next((scores for scores in scored.values() if scores.tokens_TK.shape[1]), None),
        chunks=sequence.chunks,
        replies=tuple(
            reply
            for turn, reply in sequence.replies.items()
            if chosen_T[turn] and reply.end > reply.begin
        ),
        observed_T=after_T & (np.asarray(sequence.tokens[1:]) >= 0),  # no marks
    )


@frozen(eq=False)
class EpisodeDatums:
    """The datums of one rollout."""

    rollout: Rollout
    datums: list[TrainingDatum]

    @property
    def group(self) -> tuple[str, int]:
        return self.rollout.group

    @property
    def sampled(self) -> int:
        return sum(datum.sampled for datum in self.datums)


@frozen(eq=False)
class Minibatch:
    """The datums of one optimiser update and the configuration of its loss; ``taught`` are those of
    which it also, or only, learns a teacher's top-k tokens, ``observed`` those of which it learns
    what comes between replies."""

    datums: list[TrainingDatum]
    loss_config: dict[str, float]
    taught: list[TrainingDatum] = field(factory=list)
    observed: list[TrainingDatum] = field(factory=list)


def rollout_datums(
    rollouts: Sequence[Rollout],
    advantages_RT: Sequence[FloatArray],
    chosen_RT: Sequence[npt.NDArray[np.bool_]],
    scored_R: Sequence[Mapping[str, Sequence[Scores]]],
    of_tokens_RA: Sequence[FloatArray | None] | None = None,
) -> list[EpisodeDatums]:
    """Return the datums of each rollout that has any."""
    of_tokens = of_tokens_RA or [None] * len(rollouts)
    rows = zip(rollouts, advantages_RT, chosen_RT, scored_R, of_tokens, strict=True)
    episodes = []
    made: Counter[tuple[str | int, ...]] = Counter()  # one role of a member may reply several times
    for rollout, advantages_T, chosen_T, scored, of_tokens_A in rows:
        who, named = (*rollout.group, rollout.member, rollout.role), list[TrainingDatum]()
        for datum in episode_datums(rollout.turns, advantages_T, chosen_T, scored, of_tokens_A):
            named.append(evolve(datum, name=(*who, made[who])))
            made[who] += 1
        episodes.append(EpisodeDatums(rollout, named))
    return [episode for episode in episodes if episode.datums]


def minibatches(
    objective: PolicyGradient, updates: int, episodes: Sequence[EpisodeDatums]
) -> list[Minibatch]:
    """Return the minibatches of the ``updates`` of a batch, in order, without empty ones."""
    if loss_traits(objective.loss).recorded:  # each token is named by a reply that is trained on
        episodes = [evolve(e, datums=[d.trimmed() for d in e.datums]) for e in episodes]
    if objective.kl is not None and objective.kl.coef:
        episodes = _pulled("reference", objective.kl, episodes)
    for teacher in objective.teacher:
        if teacher.coef and not teacher_traits(teacher.kind).targets:
            episodes = _pulled("teacher", teacher, episodes)
    found = []
    for part in _split(episodes, updates):
        minibatch = _weighted(objective.aggregate, objective.loss, part)
        taught, observed = _taught(objective, part), _observed(objective, part)
        found.append(evolve(minibatch, taught=taught, observed=observed))
    return [one for one in found if one.datums or one.taught or one.observed]


def _taught(objective: PolicyGradient, episodes: Sequence[EpisodeDatums]) -> list[TrainingDatum]:
    """Return the datums that learn a teacher's top-k tokens, with their weights."""
    weight_R = _token_weights(objective.aggregate, episodes, [e.sampled for e in episodes])
    return [
        evolve(datum, weight=weight * teacher.coef)
        for episode, weight in zip(episodes, weight_R, strict=True)
        if (teacher := teacher_of(objective.teacher, episode.group[0])) is not None
        for datum in episode.datums
        if datum.topk is not None and datum.topk.mass_T[datum.mask_T].any()
    ]


def _observed(objective: PolicyGradient, episodes: Sequence[EpisodeDatums]) -> list[TrainingDatum]:
    """Return the datums that learn what comes between replies, added up as the replies are."""
    if objective.observations is None:
        return []
    counts_R = [sum(int(datum.observed_T.sum()) for datum in e.datums) for e in episodes]
    weight_R = _token_weights(objective.aggregate, episodes, counts_R)
    return [
        datum.observing(objective.observations * weight)
        for episode, weight in zip(episodes, weight_R, strict=True)
        for datum in episode.datums
        if datum.observed_T.any()
    ]


def _pulled(
    scorer: str, by: KlPlan | TeacherPlan, episodes: Sequence[EpisodeDatums]
) -> list[EpisodeDatums]:
    """Subtract the distance from a reference, or from the teacher of an environment, from the
    advantages of the tokens that it scores."""
    env = by.name if isinstance(by, TeacherPlan) else None
    mine = [episode for episode in episodes if env in (None, episode.group[0])]
    datums = [datum for episode in mine for datum in episode.datums]
    scored_DT = [datum.scored[scorer] for datum in datums if scorer in datum.scored]
    if len(scored_DT) < len(datums):
        raise RunError(f"a sequence has no logprobs of the {scorer} that it is compared with")
    pairs = zip(datums, scored_DT, strict=True)
    mask_DT = [datum.mask_T & ~np.isnan(scored_T) for datum, scored_T in pairs]
    logprobs_DT, centred = [datum.logprobs_T for datum in datums], isinstance(by, KlPlan)
    change_DT = kl_penalty(logprobs_DT, scored_DT, mask_DT, by.coef, by.discount, centred=centred)
    changed = iter(
        evolve(datum, advantages_T=datum.advantages_T + change_T)
        for datum, change_T in zip(datums, change_DT, strict=True)
    )
    return [
        evolve(one, datums=[next(changed) for _ in one.datums])
        if env in (None, one.group[0])
        else one
        for one in episodes
    ]


def _split(episodes: Sequence[EpisodeDatums], updates: int) -> list[list[EpisodeDatums]]:
    """Return even parts, in order, with the members of a group together."""
    members = list(grouped(episodes, lambda episode: episode.group).values())
    bounds = np.linspace(0, len(members), updates + 1).round().astype(int).tolist()
    return [
        [episode for group in members[start:end] for episode in group]
        for start, end in pairwise(bounds)
    ]


def _weighted(
    aggregate: AggregatePlan, loss: LossPlan, episodes: Sequence[EpisodeDatums]
) -> Minibatch:
    """Fold the weights of the aggregation into advantages and loss."""
    if not episodes:
        return Minibatch([], loss.config)
    weight_R = _token_weights(
        aggregate, episodes, [len(e.datums) if loss.by_sequence else e.sampled for e in episodes]
    )
    weighted = [
        (datum, weight / datum.sampled if loss.mean else weight)
        for episode, weight in zip(episodes, weight_R, strict=True)
        for datum in episode.datums
    ]
    traits = loss_traits(loss)
    if traits.weighted:  # a token without an advantage may have a gradient too
        return Minibatch([evolve(datum, weight=w) for datum, w in weighted], loss.config)
    datums = [evolve(d, advantages_T=w * d.advantages_T, folded=w) for d, w in weighted]
    pull = traits.pull
    if pull is None:
        return Minibatch([datum for datum in datums if datum.advantages_T.any()], loss.config)
    if not can_weigh(aggregate, loss):
        raise RunError(f"`{loss.name}()` cannot be weighted by `{aggregate.kind}()`")
    if pull not in loss.config:  # the service's own
        return Minibatch(datums, loss.config)
    # The pull acts on a token without an advantage too, and has the same weight as the others.
    return Minibatch(datums, {**loss.config, pull: loss.config[pull] * weight_R[0]})


def _token_weights(
    aggregate: AggregatePlan, episodes: Sequence[EpisodeDatums], counts_R: Sequence[int]
) -> list[float]:
    """Return the weight of a token of each episode, which counts so many."""
    labels = {group: i for i, group in enumerate(dict.fromkeys(e.group for e in episodes))}
    groups_R = [labels[episode.group] for episode in episodes]
    weights: list[float] = aggregate_weights(
        aggregate.kind, counts_R, groups_R, aggregate.length
    ).tolist()
    return weights
