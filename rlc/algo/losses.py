"""Losses of preferences.

One compares two replies, or rates one. A reply counts with a score: its logprob
(nats, summed over its tokens), less that of a reference where the loss has one, over its number of
tokens where the loss takes the mean. Each function returns the loss of every pair (or reply) and
its slopes in the scores. Versions: the definitions of TRL 1.16 (``DPOTrainer``, ``KTOTrainer``, and
``CPOTrainer`` and ``ORPOTrainer`` of ``trl.experimental``) and of ``train_dpo`` of tinker-cookbook
0.5.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rlc.algo.episodes import Bools, Floats
from rlc.records import frozen

# The mean logprob of a reply in an odds ratio: at 0 its odds would be infinite.
_LARGEST_LOGPROB = -1e-6


@frozen(eq=False)
class PairLoss:
    """The loss of each of P pairs, and its slopes in the scores of both replies."""

    loss_P: Floats
    chosen_slope_P: Floats
    rejected_slope_P: Floats


@frozen(eq=False)
class LabelledLoss:
    """The loss of each of N replies, and its slope in the reply's score."""

    loss_N: Floats
    slope_N: Floats


def _log_sigmoid(x: Floats) -> Floats:
    return -np.logaddexp(0.0, -x)


def _sigmoid(x: Floats) -> Floats:
    return np.exp(_log_sigmoid(x))


def _logistic(margin_P: Floats, scale: float, smoothing: float) -> PairLoss:
    """Return −(1−ε) log σ(m) − ε log σ(−m) of a margin with slope ``scale`` in the chosen score."""
    kept, turned = 1.0 - smoothing, smoothing
    loss_P = -kept * _log_sigmoid(margin_P) - turned * _log_sigmoid(-margin_P)
    slope_P = scale * (turned * _sigmoid(margin_P) - kept * _sigmoid(-margin_P))
    return PairLoss(loss_P, slope_P, -slope_P)


def dpo(chosen_P: Floats, rejected_P: Floats, beta: float, label_smoothing: float) -> PairLoss:
    """Direct preference optimisation (arXiv 2305.18290), with label smoothing as cDPO has it.

    TRL's ``sigmoid`` and the cookbook's ``compute_dpo_loss`` without smoothing. CPO (arXiv
    2401.08417) is the same of logprobs without a reference.
    """
    return _logistic(beta * (chosen_P - rejected_P), beta, label_smoothing)


def ipo(chosen_P: Floats, rejected_P: Floats, beta: float) -> PairLoss:
    """Identity preference optimisation (arXiv 2310.12036, equation 17), of mean scores as TRL's
    ``ipo`` takes them."""
    off_P = chosen_P - rejected_P - 1.0 / (2.0 * beta)
    return PairLoss(off_P**2, 2.0 * off_P, -2.0 * off_P)


def simpo(chosen_P: Floats, rejected_P: Floats, beta: float, gamma: float) -> PairLoss:
    """SimPO (arXiv 2405.14734): mean logprobs, without a reference, apart by a margin of gamma;
    TRL's ``simpo`` with ``cpo_alpha = 0``."""
    return _logistic(beta * (chosen_P - rejected_P) - gamma, beta, 0.0)


def orpo(chosen_P: Floats, rejected_P: Floats, beta: float) -> PairLoss:
    """The odds ratio of ORPO (arXiv 2403.07691, equations 6 and 7), of mean logprobs."""
    scores_2P = np.minimum(np.stack([chosen_P, rejected_P]), _LARGEST_LOGPROB)
    odds_2P = scores_2P - np.log(-np.expm1(scores_2P))
    slope_2P = -1.0 / np.expm1(scores_2P)  # of the log odds in the score
    ratio_P = odds_2P[0] - odds_2P[1]
    pull_P = beta * _sigmoid(-ratio_P)
    return PairLoss(-beta * _log_sigmoid(ratio_P), -pull_P * slope_2P[0], pull_P * slope_2P[1])


def brier(chosen_P: Floats, rejected_P: Floats, beta: float) -> PairLoss:
    """Brier's score (Monthly Weather Review 78, 1950) of the shares that two replies have of the
    probability of both: the squares of what each is off. With a ``beta`` of 1 the loss of
    ``recipes/decisions`` of tinker-cookbook 0.5.8, of two choices."""
    margin_P = beta * (chosen_P - rejected_P)
    off_P = _sigmoid(-margin_P)
    slope_P = -4.0 * beta * off_P**2 * _sigmoid(margin_P)
    return PairLoss(2.0 * off_P**2, slope_P, -slope_P)


def kto(
    score_N: Floats,
    desirable_N: Bools,
    mismatched_N: Floats,
    beta: float,
    desirable: float,
    undesirable: float,
) -> LabelledLoss:
    """KTO (arXiv 2402.01306, equation 7): good replies are to have a score above the mean score of
    mismatched ones, an estimate of the divergence from the reference that has no gradient; bad ones
    a score below. TRL's ``kto``."""
    above_N = np.where(desirable_N, 1.0, -1.0) * beta * (score_N - divergence(mismatched_N))
    weight_N = np.where(desirable_N, desirable, undesirable)
    share_N = _sigmoid(above_N)
    slope_N = -weight_N * beta * share_N * _sigmoid(-above_N)
    return LabelledLoss(weight_N * _sigmoid(-above_N), np.where(desirable_N, slope_N, -slope_N))


def divergence(mismatched_N: Floats) -> float:
    """Return KTO's estimate of the divergence: the mean score of mismatched replies, at least 0."""
    return max(float(np.mean(mismatched_N)), 0.0)


# The losses of pairs, by name.
PAIRWISE: Mapping[str, Callable[..., PairLoss]] = {
    "dpo": dpo,
    "ipo": ipo,
    "simpo": simpo,
    "cpo": dpo,
    "orpo": orpo,
    "brier": brier,
}
