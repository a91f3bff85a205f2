"""Preferences as gradients: the logprobs of replies, judged by a loss, become weights of tokens.

A loss over preferences is an expression over the logprobs of replies, mostly of their sums. Its
gradient is that of a weighted log-likelihood, whose weights follow from a forward pass: one
``forward`` and one ``forward_backward`` compute it exactly, on any service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from rlc.algo import LIKELIHOODS, OF_SIDES, preference_loss_and_grad
from rlc.catalog import PreferenceTraits, preference_program, preference_traits
from rlc.plan import PreferenceLossPlan
from rlc.runtime.rollouts.tokens import TokenSequence
from rlc.runtime.updates.datums import FloatArray, TrainingDatum, shifted

IntArray = npt.NDArray[np.int64]
_DIGEST_BYTES = 16


@frozen(eq=False)
class Completion:
    """A reply after its prompt: mostly one sequence, several where the renderer rewrites turns.
    ``key`` is a digest of its tokens and of which of them are the reply's."""

    datums: list[TrainingDatum]
    key: str

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> Completion:
        """Return the reply whose tokens are those in a turn."""
        turns = 1 + max(turn for sequence in sequences for turn in sequence.turns)
        ones_T, chosen_T = np.ones(turns), np.ones(turns, dtype=np.bool_)
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for sequence in sequences:
            digest.update(repr(sequence.written()).encode())
        return cls([shifted(s, ones_T, chosen_T) for s in sequences], digest.hexdigest())

    def replies(self, logprobs_DT: Sequence[FloatArray]) -> FloatArray:
        """Return the logprobs of the reply's tokens from those of the datums."""
        rows = zip(self.datums, logprobs_DT, strict=True)
        return np.concatenate([row[datum.mask_T] for datum, row in rows]).astype(np.float64)


@frozen(eq=False)
class Preference:
    """A pair, the better completion first, or a labelled one and one for its divergence."""

    number: int  # in the data
    sides: tuple[Completion, Completion]
    good: bool | None = None  # None: a pair
    ratings: Mapping[str, float] = field(factory=dict)  # those that the loss reads


def pairs(records: Sequence[Mapping[str, Any]], better: str, worse: str) -> list[Preference]:
    """Return the pairs of the records in a run folder."""

    def side(parts: Sequence[Mapping[str, Any]]) -> Completion:
        return Completion.of([TokenSequence.read(part) for part in parts])

    return [
        Preference(
            number, (side(record[better]), side(record[worse])), None, record.get("ratings", {})
        )
        for number, record in enumerate(records)
    ]


def labelled(records: Sequence[Mapping[str, Any]], better: str, worse: str) -> list[Preference]:
    """Return the labelled replies of records, each with the reply to another prompt."""
    given = [
        (number, name == better, [TokenSequence.read(part) for part in record[name]])
        for number, record in enumerate(records)
        for name in (better, worse)
        if name in record
    ]
    firsts = [sequences[0] for *_, sequences in given]
    begins = [next(at for at, turn in enumerate(one.turns) if turn >= 0) for one in firsts]
    prompts = [one.tokens[:begin] for one, begin in zip(firsts, begins, strict=True)]
    found = []
    for at, (number, good, sequences) in enumerate(given):
        after = (*range(at + 1, len(given)), *range(at))
        other = next((i for i in after if prompts[i] != prompts[at]), at)
        first, reply, end, begin = firsts[at], firsts[other], begins[at], begins[other]
        prompt = first.tokens[:end], first.logprobs[:end], first.turns[:end]
        mixed = TokenSequence(*prompt, first.chunks)
        mixed.append(reply.tokens[begin:], reply.logprobs[begin:], 0)
        sides = Completion.of(sequences), Completion.of([mixed])
        rated = records[number].get("ratings", {})
        side_rating = "chosen_rating" if good else "rejected_rating"
        ratings = {"rating": rated.get("rating", rated.get(side_rating))} if rated else {}
        found.append(Preference(number, sides, good, ratings))
    return found


@frozen(eq=False)
class PreferenceLossResult:
    """Weighted datums with the gradient of a loss, its metrics, and the rewards of sides."""

    datums: list[TrainingDatum]
    metrics: dict[str, float]
    rewards: list[list[float]] = field(factory=list)


_Logprobs = Sequence[Sequence[FloatArray]]  # of each datum of each side


@frozen(eq=False)
class _Replies:
    """The replies of all sides: the logprobs of their tokens, and of these under the reference."""

    rows_ST: Sequence[FloatArray]
    known_ST: Sequence[FloatArray] | None

    def inputs(self, side: str, at: IntArray) -> dict[str, Any]:
        """Return what a loss reads of some replies."""
        name, ref, length, tokens, ref_tokens = OF_SIDES[side]
        rows = [self.rows_ST[one] for one in at]
        found: dict[str, Any] = {name: _sums(rows), tokens: rows}
        found[length] = np.array([float(len(row)) for row in rows])
        if self.known_ST is not None:
            known = [self.known_ST[one] for one in at]
            found |= {ref: _sums(known), ref_tokens: known}
        return found


def _sums(rows: Sequence[FloatArray]) -> FloatArray:
    return np.array([row.sum() for row in rows])


@frozen(eq=False)
class _Likelihood:
    """The mean log-likelihood of the tokens that the masks mark in the datums of sides."""

    masks: dict[int, list[npt.NDArray[np.bool_]]]
    count: int
    mean: float

    @classmethod
    def of(
        cls, sides: Sequence[Completion], at: IntArray, logprobs_SDT: _Logprobs, whole: bool
    ) -> _Likelihood:
        masks = {
            one: [np.ones_like(d.mask_T) if whole else d.mask_T for d in sides[one].datums]
            for one in at
        }
        count = sum(int(mask_T.sum()) for masks_DT in masks.values() for mask_T in masks_DT)
        total = 0.0
        for one, masks_DT in masks.items():
            rows = zip(masks_DT, logprobs_SDT[one], strict=True)
            total += sum(float(row[mask_T].astype(np.float64).sum()) for mask_T, row in rows)
        return cls(masks, count, total / count)


def judge(
    loss: PreferenceLossPlan,
    preferences: Sequence[Preference],
    logprobs_SDT: _Logprobs,
    reference_ST: Sequence[FloatArray] | None,
) -> PreferenceLossResult:
    """Return the loss of preferences by the logprobs of their sides, in order: those of the weights
    for all datums, and those of the reference for the tokens of replies."""
    program, traits = preference_program(loss), preference_traits(loss)
    sides = [side for preference in preferences for side in preference.sides]
    rows_ST = [side.replies(row) for side, row in zip(sides, logprobs_SDT, strict=True)]
    replies = _Replies(rows_ST, reference_ST or None)
    first, second = np.arange(0, len(sides), 2), np.arange(1, len(sides), 2)
    names = ("logp", "mismatched") if traits.labelled else ("chosen", "rejected")
    inputs = replies.inputs(names[0], first) | replies.inputs(names[1], second)
    inputs["good"] = np.array([float(bool(one.good)) for one in preferences])
    for name in traits.ratings:
        inputs[name] = np.array([one.ratings[name] for one in preferences])
    likelihoods = {
        name: _Likelihood.of(sides, first, logprobs_SDT, whole)
        for name, whole in LIKELIHOODS.items()
        if name in program.inputs
    }
    inputs |= {name: np.full(len(first), -one.mean) for name, one in likelihoods.items()}
    mean, grads = preference_loss_and_grad(program, inputs)
    weights = dict[int, list[FloatArray]]()
    for name, at in zip(names, (first,) if traits.labelled else (first, second), strict=False):
        weights |= _weights([sides[one] for one in at], at, grads, name)
    for name, likelihood in likelihoods.items():
        share = float(grads[name].sum()) / likelihood.count
        for one, masks_DT in likelihood.masks.items():
            pairs = zip(weights[one], masks_DT, strict=True)
            weights[one] = [weight_T + share * mask_T for weight_T, mask_T in pairs]
    metrics, rewards_S = _compared(loss, traits, preferences, replies)
    trained = sorted(weights)
    datums = [
        evolve(datum, advantages_T=weight_T)
        for at in trained
        for datum, weight_T in zip(sides[at].datums, weights[at], strict=True)
    ]
    rewards = rewards_S[trained].reshape(len(preferences), -1)
    return PreferenceLossResult(datums, {"loss/mean": mean, **metrics}, rewards.tolist())


def _weights(
    sides: Sequence[Completion], at: IntArray, grads: Mapping[str, FloatArray], name: str
) -> dict[int, list[FloatArray]]:
    """Return the weights of the tokens of some sides: minus the gradient, by the sums of their
    logprobs and by each."""
    sums, tokens = grads.get(name, np.zeros(len(sides))), grads.get(OF_SIDES[name][3])
    weights = {
        place: [-slope * datum.mask_T for datum in side.datums]
        for place, side, slope in zip(at, sides, sums, strict=True)
    }
    if tokens is not None:
        masks = [datum.mask_T for side in sides for datum in side.datums]
        slopes = np.split(tokens, np.cumsum([mask_T.sum() for mask_T in masks])[:-1])
        weights_D = [weight_T for place in at for weight_T in weights[place]]
        for weight_T, mask_T, slope_T in zip(weights_D, masks, slopes, strict=True):
            weight_T[mask_T] -= slope_T
    return weights


def _compared(
    loss: PreferenceLossPlan,
    traits: PreferenceTraits,
    preferences: Sequence[Preference],
    replies: _Replies,
) -> tuple[dict[str, float], FloatArray]:
    """Return the metrics of preferences beside their loss, and the rewards of all sides: their
    scores, times ``beta`` of a loss that comes with rlc."""
    beta = loss.config.get("beta", 1.0)
    rows_ST, known_ST = replies.rows_ST, replies.known_ST
    sums_S, counts_S = _sums(rows_ST), np.array([float(len(row)) for row in rows_ST])
    scores_S = sums_S - _sums(known_ST) if known_ST is not None else sums_S
    scores_S = scores_S / counts_S if traits.mean else scores_S
    better, worse = np.arange(0, len(rows_ST), 2), np.arange(1, len(rows_ST), 2)
    metrics = dict[str, float]()
    if traits.labelled:
        metrics["kl/mismatched"] = max(float(np.mean(scores_S[worse])), 0.0)
        good_N = np.array([bool(one.good) for one in preferences])
        better, worse = better[good_N], better[~good_N]
        ahead_P = np.subtract.outer(scores_S[better], scores_S[worse]).ravel()
    else:
        ahead_P = scores_S[better] - scores_S[worse]
    for name, at in (("chosen", better), ("rejected", worse)):
        if len(at):
            metrics[f"rewards/{name}"] = beta * float(scores_S[at].mean())
            metrics[f"logps/{name}"] = float(sums_S[at].mean())
    if len(ahead_P):  # of equals, half is right
        metrics["accuracy"] = float(np.mean(0.5 + 0.5 * np.sign(ahead_P)))
        metrics["margin"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
    trained = sorted([*better, *worse])
    if known_ST is not None:
        apart_T = np.concatenate([rows_ST[at] - known_ST[at] for at in trained])
        metrics["kl/reference"] = float(np.mean(apart_T**2) / 2)
    metrics["examples/tokens"] = float(counts_S[trained].sum())
    return metrics, beta * scores_S
