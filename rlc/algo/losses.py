"""Losses: Tinker's server losses on one datum, which a service is checked against.

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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Floats
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
