"""Losses: Tinker's server losses on one datum, which a service is checked against, and losses of
preferences.

The server losses are sums over the T tokens of a datum; nothing is averaged. ``lp`` is the
learner's logprob of each target token, ``q`` the sampler's, ``A`` the advantage, ``rho = exp(lp -
q)``:

==================== ================================================= ===========
loss                 definition                                        settings
==================== ================================================= ===========
cross_entropy        ``-Σ w lp``
importance_sampling  ``-Σ rho A``
ppo                  ``-Σ min(rho A, clip(rho, low, high) A)``         low, high
cispo                ``-Σ stop_gradient(clip(rho, low, high)) lp A``   low, high
dro                  ``-Σ (lp A - beta/2 (lp - q)²)``                  beta
gspo                 ``-Σ min(s A, clip(s, low, high) A)``             low, high
stable_reinforce     ``-Σ m (lp A - kl_coeff/2 (lp - q)²)``            kl_coeff
==================== ================================================= ===========

The catalogue has the settings' defaults. gspo (arXiv 2507.18071) has one ratio for all tokens of a
datum, ``s = exp(mean(lp - q))`` over those that ``sequence_ratio_mask`` marks; its gradient on a
token's logprob, marked or not, is that of ``stop_gradient(s) exp(lp - stop_gradient(lp))``.

Tinker does not publish its definition of stable_reinforce, a REINFORCE that stays stable
off-policy. This one, of the embedded engine and ``rlc serve``, has a quadratic pull to the sampler;
``m`` is 1 on sampled tokens and 0 elsewhere, from the provenance spans of the datum.

``low`` and ``high`` stand for ``clip_low_threshold`` and ``clip_high_threshold``: bounds of the
ratio itself, not distances from 1. Source: the Tinker documentation of losses, SDK 0.38.

A loss of preferences compares two replies, or rates one. A reply counts with a score: its logprob
(nats, summed over its tokens), less that of a reference where the loss has one, over its number of
tokens where the loss takes the mean. Each function returns the loss of every pair (or reply) and
its slopes in the scores. Versions: the definitions of TRL 1.16 (``DPOTrainer``, ``KTOTrainer``, and
``CPOTrainer`` and ``ORPOTrainer`` of ``trl.experimental``) and of ``train_dpo`` of tinker-cookbook
0.5.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Bools, Floats
from rlc.algo.errors import AlgorithmError
from rlc.records import frozen

_Columns = Mapping[str, Floats]
_Terms = tuple[Floats, Floats]


@frozen
class Loss:
    """A server loss: what a datum must hold, its settings, and its per-token terms."""

    inputs: tuple[str, ...]
    config: tuple[str, ...]  # settings, all of which have to be given
    terms: Callable[[Floats, _Columns], _Terms]  # -> (loss_T, dloss_dlogprobs_T)
    optional: Mapping[str, float] = MappingProxyType({})  # further inputs -> default


def builtin_loss_and_grad(
    name: str,
    config: Mapping[str, float] | None,
    logprobs_T: npt.ArrayLike,
    inputs: Mapping[str, npt.ArrayLike],
) -> tuple[float, Floats]:
    """Return the loss of one datum and its gradient by the learner's logprobs.

    Args:
        name: a key of :data:`LOSSES`.
        config: the loss's settings, named as on Tinker.
        logprobs_T: the learner's logprobs of the target tokens.
        inputs: the datum's ``loss_fn_inputs``: ``weights`` for cross_entropy, ``logprobs`` and
            ``advantages`` for the others, shape (T,). ``target_tokens`` may be there and is not
            read. gspo's ``sequence_ratio_mask`` and stable_reinforce's ``sampled`` are 1
            everywhere if left out. Clip thresholds may be given as arrays here, one a token, and
            win over config.

    Returns:
        The summed loss, and its gradient, shape (T,).

    Raises:
        AlgorithmError: an unknown loss, setting or input, one that is missing or of another
            length, thresholds out of order, or a result that is not finite.
    """
    if name not in LOSSES:
        raise AlgorithmError(f"unknown loss {name!r}; known are {', '.join(sorted(LOSSES))}")
    logprobs_T = np.asarray(logprobs_T, dtype=np.float64)
    columns = _columns(name, config or {}, inputs, len(logprobs_T))
    with np.errstate(all="ignore"):  # an overflowing ratio is refused below
        loss_T, grad_T = LOSSES[name].terms(logprobs_T, columns)
    if not (np.isfinite(loss_T).all() and np.isfinite(grad_T).all()):
        names = " and ".join(LOSSES[name].inputs)
        raise AlgorithmError(f"{name} is not finite: check the logprobs and the {names}")
    return float(loss_T.sum()), grad_T


def _columns(
    name: str, config: Mapping[str, float], inputs: Mapping[str, npt.ArrayLike], length: int
) -> dict[str, Floats]:
    """Return the inputs and settings of a loss as columns of shape (T,). Raise AlgorithmError if
    they do not fit."""
    loss = LOSSES[name]
    thresholds = {key for key in loss.config if key.startswith("clip_")}
    _require_known(name, "setting", set(config), set(loss.config))
    known = {*loss.inputs, *loss.optional, *thresholds, "target_tokens"}
    _require_known(name, "input", set(inputs), known)
    for key in loss.inputs:
        if key not in inputs:
            raise AlgorithmError(f"{name} needs the input {key!r}")
    given = {**loss.optional, **config, **inputs}
    columns: dict[str, Floats] = {}
    for key in (*loss.inputs, *loss.optional, *loss.config):
        if key not in given:
            raise AlgorithmError(f"{name} needs the setting {key!r}")
        column = np.asarray(given[key], dtype=np.float64)
        if column.shape != (length,) and (key in inputs or column.shape):
            raise AlgorithmError(
                f"{key} of {name} has shape {column.shape}, the logprobs have ({length},)"
            )
        columns[key] = np.broadcast_to(column, (length,))
    if thresholds and (columns["clip_low_threshold"] > columns["clip_high_threshold"]).any():
        raise AlgorithmError(f"{name}: clip_low_threshold is above clip_high_threshold")
    return columns


def _require_known(name: str, what: str, given: set[str], known: set[str]) -> None:
    if unknown := sorted(given - known):
        choices = ", ".join(sorted(known)) or "none"
        raise AlgorithmError(f"{name} has no {what} {unknown[0]!r}; it knows {choices}")


def _cross_entropy(logprobs_T: Floats, columns: _Columns) -> _Terms:
    weights_T = columns["weights"]
    return -weights_T * logprobs_T, -weights_T


def _importance_sampling(logprobs_T: Floats, columns: _Columns) -> _Terms:
    loss_T = -np.exp(logprobs_T - columns["logprobs"]) * columns["advantages"]
    return loss_T, loss_T.copy()  # d rho / d lp = rho


def _ppo(logprobs_T: Floats, columns: _Columns) -> _Terms:
    ratio_T = np.exp(logprobs_T - columns["logprobs"])
    return _surrogate(ratio_T, columns["advantages"], columns)


def _gspo(logprobs_T: Floats, columns: _Columns) -> _Terms:
    mask_T = columns["sequence_ratio_mask"]
    drift = ((logprobs_T - columns["logprobs"]) * mask_T).sum() / max(mask_T.sum(), 1.0)
    return _surrogate(np.full(len(logprobs_T), np.exp(drift)), columns["advantages"], columns)


def _surrogate(ratio_T: Floats, advantages_T: Floats, columns: _Columns) -> _Terms:
    """Return the terms of PPO: a token whose clipped term is the smaller one has no gradient."""
    free_T, clipped_T = ratio_T * advantages_T, _clipped(ratio_T, columns) * advantages_T
    return -np.minimum(free_T, clipped_T), -np.where(free_T <= clipped_T, free_T, 0.0)


def _cispo(logprobs_T: Floats, columns: _Columns) -> _Terms:
    clipped_T = _clipped(np.exp(logprobs_T - columns["logprobs"]), columns)
    grad_T = -clipped_T * columns["advantages"]
    return grad_T * logprobs_T, grad_T


def _clipped(ratio_T: Floats, columns: _Columns) -> Floats:
    return np.clip(ratio_T, columns["clip_low_threshold"], columns["clip_high_threshold"])


def _dro(logprobs_T: Floats, columns: _Columns) -> _Terms:
    return _pulled(logprobs_T, columns, columns["beta"])


def _stable_reinforce(logprobs_T: Floats, columns: _Columns) -> _Terms:
    loss_T, grad_T = _pulled(logprobs_T, columns, columns["kl_coeff"])
    return columns["sampled"] * loss_T, columns["sampled"] * grad_T


def _pulled(logprobs_T: Floats, columns: _Columns, pull_T: Floats) -> _Terms:
    """Return the terms of REINFORCE with a quadratic pull to the sampler."""
    advantages_T, drift_T = columns["advantages"], logprobs_T - columns["logprobs"]
    loss_T = -(logprobs_T * advantages_T - 0.5 * pull_T * drift_T**2)
    return loss_T, pull_T * drift_T - advantages_T


_POLICY = ("logprobs", "advantages")
_CLIP = ("clip_low_threshold", "clip_high_threshold")

LOSSES: Mapping[str, Loss] = {
    "cross_entropy": Loss(("weights",), (), _cross_entropy),
    "importance_sampling": Loss(_POLICY, (), _importance_sampling),
    "ppo": Loss(_POLICY, _CLIP, _ppo),
    "cispo": Loss(_POLICY, _CLIP, _cispo),
    "dro": Loss(_POLICY, ("beta",), _dro),
    "gspo": Loss(_POLICY, _CLIP, _gspo, {"sequence_ratio_mask": 1.0}),
    "stable_reinforce": Loss(_POLICY, ("kl_coeff",), _stable_reinforce, {"sampled": 1.0}),
}
"""The losses known here, by Tinker's names."""


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
