"""Losses of the training service, with the service's own definitions (Tinker, SDK 0.38).

The service sums over the sampled tokens t of a batch and averages nothing. p is the trainer's
probability of a token, q the sampler's.
"""

from __future__ import annotations

from rlc.catalog.records import Args, Builtin, Param
from rlc.plan.records import LossPlan

_RATIO = "ρ_t = p_t / q_t"
_CLIPPED = "clip(ρ_t, clip_low, clip_high)"


def _thresholds(name: str, args: Args) -> LossPlan:
    config = {"clip_low_threshold": args.clip_low, "clip_high_threshold": args.clip_high}
    return LossPlan(name, config)


def _clip_params(low: float, high: float) -> tuple[Param, Param]:
    return (
        Param("clip_low", "float", "smallest ratio that counts; a ratio, not 1 - ε", low, low=0),
        Param("clip_high", "float", "largest ratio that counts; a ratio, not 1 + ε", high, above=0),
    )


LOSSES = (
    Builtin(
        "importance_sampling",
        "loss",
        "policy gradient, corrected for what the sampler's weights were",
        lambda _: LossPlan("importance_sampling", {}),
        formula=("L = − Σ_t ρ_t A_t", _RATIO),
    ),
    Builtin(
        "ppo",
        "loss",
        "importance sampling that stops rewarding a ratio outside the clip range",
        lambda args: _thresholds("ppo", args),
        _clip_params(0.8, 1.2),
        formula=(f"L = − Σ_t min(ρ_t A_t, {_CLIPPED} A_t)", _RATIO),
    ),
    Builtin(
        "cispo",
        "loss",
        "log-likelihood weighted by a clipped ratio; no token loses its gradient",
        lambda args: _thresholds("cispo", args),
        _clip_params(0.0, 4.0),
        formula=(f"L = − Σ_t sg({_CLIPPED}) log p_t A_t", _RATIO, "sg: no gradient"),
    ),
    Builtin(
        "dro",
        "loss",
        "direct reward optimisation: a quadratic pull towards the sampler",
        lambda args: LossPlan("dro", {"beta": args.beta}),
        (Param("beta", "float", "strength of the pull", 0.05, above=0),),
        formula=("L = − Σ_t (log p_t A_t − β/2 (log p_t − log q_t)²)",),
    ),
    Builtin(
        "gspo",
        "loss",
        "PPO with one ratio for the whole sequence (arXiv 2507.18071)",
        lambda args: _thresholds("gspo", args),
        _clip_params(0.9997, 1.0004),
        formula=(
            "L = − Σ_t min(s_t A_t, clip(s_t, clip_low, clip_high) A_t)",
            "s_t: exp of the mean of log p − log q over the sequence, its gradient on token t",
        ),
    ),
    Builtin(
        "cross_entropy",
        "loss",
        "log-likelihood weighted by the advantage: the policy gradient without a ratio",
        lambda _: LossPlan("cross_entropy", {}),
        formula=("L = − Σ_t A_t log p_t",),
    ),
)
