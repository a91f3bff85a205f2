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

    ``key`` is that of its tokens, and of which of them are the reply's.
    """

    datums: list[TrainingDatum]
    key: str

    @classmethod
    def of(cls, sequences: Sequence[TokenSequence]) -> Completion:
        """Return a side whose tokens in a turn are those of the reply."""
        turns = 1 + max(turn for sequence in sequences for turn in sequence.turns)
        ones_T, chosen_T = np.ones(turns), np.ones(turns, dtype=np.bool_)
        digest = blake2b(digest_size=_DIGEST_BYTES)
        for sequence in sequences:
            digest.update(repr(sequence.written()).encode())
        return cls([shifted(s, ones_T, chosen_T) for s in sequences], digest.hexdigest())

    @property
    def tokens(self) -> int:
        """Tokens of the reply."""
        return sum(datum.sampled for datum in self.datums)

    def replies(self, logprobs_DT: Sequence[FloatArray]) -> FloatArray:
        """The logprobs of the reply's tokens, from those of the datums."""
        rows = zip(self.datums, logprobs_DT, strict=True)
        return np.concatenate([row[datum.mask_T] for datum, row in rows]).astype(np.float64)


@frozen(eq=False)
class Preference:
    """Sides that are judged together. A pair: the better one, then the worse. A labelled reply:
    itself, then the reply to another prompt that its divergence is estimated with."""

    number: int  # in the data
    sides: tuple[Completion, Completion]
    good: bool | None = None  # None: a pair


def pairs(records: Sequence[Mapping[str, Any]], better: str, worse: str) -> list[Preference]:
    """Return the pairs of the records in a run folder."""
    return [
        Preference(number, (_side(record[better]), _side(record[worse])))
        for number, record in enumerate(records)
    ]


def labelled(records: Sequence[Mapping[str, Any]], better: str, worse: str) -> list[Preference]:
    """Return the labelled replies of records, of a pair both.

    Each has beside it its own prompt with the reply to the next prompt that differs, so that the
    logprobs of both are needed once, whatever batch they are in.
    """
    given = [
        (number, name == better, [TokenSequence.read(part) for part in record[name]])
        for number, record in enumerate(records)
        for name in (better, worse)
        if name in record
    ]
    asked = [_asked(sequences[0]) for *_, sequences in given]
    found = []
    for at, (number, good, sequences) in enumerate(given):
        after = (*range(at + 1, len(given)), *range(at))
        other = next((i for i in after if asked[i] != asked[at]), at)
        sides = (
            Completion.of(sequences),
            Completion.of([_answered(sequences[0], given[other][2][0])]),
        )
        found.append(Preference(number, sides, good))
    return found


def _side(parts: Sequence[Mapping[str, Any]]) -> Completion:
    return Completion.of([TokenSequence.read(part) for part in parts])


def _first_said(sequence: TokenSequence) -> int:
    return next(at for at, turn in enumerate(sequence.turns) if turn >= 0)


def _asked(sequence: TokenSequence) -> list[int]:
    return sequence.tokens[: _first_said(sequence)]


def _answered(asked: TokenSequence, said: TokenSequence) -> TokenSequence:
    """The prompt of one sequence with the reply of another."""
    end, begin = _first_said(asked), _first_said(said)
    prompt = TokenSequence(asked.tokens[:end], asked.logprobs[:end], asked.turns[:end])
    prompt.chunks = asked.chunks
    prompt.append(said.tokens[begin:], said.logprobs[begin:], 0)
    return prompt


@frozen(eq=False)
class PreferenceLossResult:
    """What a loss makes of some preferences: the datums that its gradient is taken of, weighted,
    its metrics, and the reward of each side."""

    datums: list[TrainingDatum]
    metrics: dict[str, float]
    rewards: list[list[float]] = field(factory=list)


@frozen(eq=False)
class _ScoreComparison:
    """What a loss says of the scores of sides: its mean, its slopes, which sides are better and
    which are worse, and by how much the better are ahead of the worse they are compared with."""

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
    """Judge preferences by the logprobs of their sides, in order: those of the weights for every
    datum, and those of the reference for the tokens of the reply."""
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
