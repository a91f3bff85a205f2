"""Preferences as gradients: the logprobs of replies, judged by a loss, become weights of tokens.

A loss over preferences compares sequences, and depends on the logprobs of each through a sum alone.
So its gradient is that of a weighted log-likelihood, whose weights follow from a forward pass: one
``forward`` and one ``forward_backward`` compute it exactly, on any service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import evolve, field, frozen

from rlc.algo import PAIRWISE, divergence, kto
from rlc.catalog import preference_traits
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


def pairs(records: Sequence[Mapping[str, Any]], better: str, worse: str) -> list[Preference]:
    """Return the pairs of the records in a run folder."""

    def side(parts: Sequence[Mapping[str, Any]]) -> Completion:
        return Completion.of([TokenSequence.read(part) for part in parts])

    return [
        Preference(number, (side(record[better]), side(record[worse])))
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
        found.append(Preference(number, sides, good))
    return found


@frozen(eq=False)
class PreferenceLossResult:
    """Weighted datums with the gradient of a loss, its metrics, and the rewards of sides."""

    datums: list[TrainingDatum]
    metrics: dict[str, float]
    rewards: list[list[float]] = field(factory=list)


@frozen(eq=False)
class _ScoreComparison:
    """A loss over the scores of sides: its mean, its slopes, the better and the worse sides, and by
    how much the better are ahead of the worse that they are compared with."""

    loss: float
    slopes_S: FloatArray
    better: IntArray
    worse: IntArray
    ahead_P: FloatArray
    metrics: dict[str, float] = field(factory=dict)


def _paired(loss: PreferenceLossPlan, scores_S: FloatArray) -> _ScoreComparison:
    config = {name: value for name, value in loss.config.items() if name != "alpha"}
    better = np.arange(0, len(scores_S), 2)
    chosen_P, rejected_P = scores_S[better], scores_S[better + 1]
    found = PAIRWISE[loss.name](chosen_P, rejected_P, **config)
    slopes_S = np.stack([found.chosen_slope_P, found.rejected_slope_P], axis=1).ravel()
    mean = float(np.mean(found.loss_P))
    return _ScoreComparison(mean, slopes_S, better, better + 1, chosen_P - rejected_P)


def _rated(
    loss: PreferenceLossPlan, preferences: Sequence[Preference], scores_S: FloatArray
) -> _ScoreComparison:
    good_N = np.array([bool(one.good) for one in preferences])
    score_N, mismatched_N = scores_S[::2], scores_S[1::2]
    found = kto(score_N, good_N, mismatched_N, **loss.config)
    slopes_S = np.stack([found.slope_N, np.zeros_like(found.slope_N)], axis=1).ravel()
    better, worse = 2 * np.flatnonzero(good_N), 2 * np.flatnonzero(~good_N)
    ahead_P = np.subtract.outer(scores_S[better], scores_S[worse]).ravel()
    mean, z = float(np.mean(found.loss_N)), divergence(mismatched_N)
    return _ScoreComparison(mean, slopes_S, better, worse, ahead_P, {"kl/mismatched": z})


def judge(
    loss: PreferenceLossPlan,
    preferences: Sequence[Preference],
    logprobs_SDT: Sequence[Sequence[FloatArray]],
    reference_ST: Sequence[FloatArray] | None,
) -> PreferenceLossResult:
    """Return the loss of preferences by the logprobs of their sides, in order: those of the weights
    for all datums, and those of the reference for the tokens of replies."""
    traits, beta = preference_traits(loss.name), loss.config["beta"]
    sides = [side for preference in preferences for side in preference.sides]
    rows = [side.replies(row) for side, row in zip(sides, logprobs_SDT, strict=True)]
    sums_S = np.array([row.sum() for row in rows])
    counts_S = np.array([float(len(row)) for row in rows])
    known_S = np.array([row.sum() for row in reference_ST]) if reference_ST else np.zeros(len(rows))
    lengths_S = counts_S if traits.mean else np.ones(len(rows))
    scores_S = (sums_S - known_S) / lengths_S
    compared = _rated(loss, preferences, scores_S) if traits.labelled else _paired(loss, scores_S)
    slopes_S = compared.slopes_S / (lengths_S * len(preferences))
    trained = sorted([*compared.better, *compared.worse])
    weights = {at: [-slopes_S[at] * d.mask_T for d in sides[at].datums] for at in trained}
    likelihood = 0.0
    if traits.likelihood is not None:
        likelihood = _add_likelihood(loss, sides, logprobs_SDT, weights)
    metrics = {"loss/mean": compared.loss + likelihood, **compared.metrics}
    for name, at in (("chosen", compared.better), ("rejected", compared.worse)):
        if len(at):
            metrics[f"rewards/{name}"] = beta * float(scores_S[at].mean())
            metrics[f"logps/{name}"] = float(sums_S[at].mean())
    if len(compared.ahead_P):  # of equals, half is right
        metrics["accuracy"] = float(np.mean(0.5 + 0.5 * np.sign(compared.ahead_P)))
        metrics["margin"] = metrics["rewards/chosen"] - metrics["rewards/rejected"]
    if reference_ST:
        apart_T = np.concatenate([rows[at] - reference_ST[at] for at in trained])
        metrics["kl/reference"] = float(np.mean(apart_T**2) / 2)
    metrics["examples/tokens"] = float(counts_S[trained].sum())
    datums = [
        evolve(datum, advantages_T=weight_T)
        for at in trained
        for datum, weight_T in zip(sides[at].datums, weights[at], strict=True)
    ]
    rewards = (beta * scores_S[trained]).reshape(len(preferences), -1)
    return PreferenceLossResult(datums, metrics, rewards.tolist())


def _add_likelihood(
    loss: PreferenceLossPlan,
    sides: Sequence[Completion],
    logprobs_SDT: Sequence[Sequence[FloatArray]],
    weights: dict[int, list[FloatArray]],
) -> float:
    """Add the weights of the better replies' mean log-likelihood; return its loss."""
    share = loss.config.get("alpha", 1.0)
    whole = preference_traits(loss.name).likelihood == "all"
    masks = {
        at: [np.ones_like(d.mask_T) if whole else d.mask_T for d in sides[at].datums]
        for at in range(0, len(sides), 2)
    }
    count = sum(int(mask_T.sum()) for masks_DT in masks.values() for mask_T in masks_DT)
    total = 0.0
    for at, masks_DT in masks.items():
        rows = zip(masks_DT, logprobs_SDT[at], strict=True)
        total += sum(float(row[mask_T].astype(np.float64).sum()) for mask_T, row in rows)
        weights[at] = [
            weight_T + share / count * mask_T
            for weight_T, mask_T in zip(weights[at], masks_DT, strict=True)
        ]
    return -share * total / count
