"""Losses of the training service, with its own definitions (Tinker, SDK 0.38), how they add up over
tokens, and the penalty on leaving a reference.

The service sums over the sampled tokens t of a batch and averages nothing. p is the trainer's
probability of a token, q the sampler's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from rlc.algo import SHARED_BY
from rlc.catalog.records import (
    MODEL_FOLDER,
    AggregateTraits,
    Args,
    Builtin,
    LossTraits,
    Param,
    builtin,
    count,
    number,
    optional,
    share,
    text,
)
from rlc.plan import AggregatePlan, KlPlan, LossPlan, Training
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.algo import Builder

_RATIO = "ρ_t = p_t / q_t"
_CLIPPED = "clip(ρ_t, clip_low, clip_high)"
_THRESHOLDS = {"clip_low": "clip_low_threshold", "clip_high": "clip_high_threshold"}


def _clip(kind: Literal["gradient", "weight"], **more: Any) -> LossTraits:
    return LossTraits(
        _THRESHOLDS, clip=kind, bounds=("clip_low", "clip_high"), takes_stale=True, **more
    )


def _clip_params(low: float, high: float, of: str = "of a token") -> tuple[Param, Param]:
    return (
        number("clip_low", f"smallest ratio {of} that counts, 1 − ε", low, low=0),
        number("clip_high", f"largest ratio {of} that counts, 1 + ε", high, above=0),
    )


def _importance(b: Builder, _: Mapping[str, int]) -> int:
    return b.apply("neg", b.apply("*", b.input("ratio"), b.input("adv")))


def _likelihood(b: Builder, _: Mapping[str, int]) -> int:
    return b.apply("neg", b.apply("*", b.input("adv"), b.input("logp")))


def _surrogate(b: Builder, ratio: int, of: Mapping[str, int]) -> int:
    """Return the loss of PPO, with any ratio."""
    clipped = b.apply("clip", ratio, of["clip_low"], of["clip_high"])
    terms = [b.apply("*", each, b.input("adv")) for each in (ratio, clipped)]
    return b.apply("neg", b.apply("min", *terms))


def _sequence_ratio(b: Builder, of: Mapping[str, int]) -> int:
    logp, logq = b.input("logp"), b.input("logq")
    s = b.apply("stop", b.apply("exp", b.apply("mean", b.apply("-", logp, logq))))
    one = b.apply("exp", b.apply("-", logp, b.apply("stop", logp)))  # 1, with the token's gradient
    return _surrogate(b, b.apply("*", s, one), of)


def _weighted_likelihood(b: Builder, of: Mapping[str, int]) -> int:
    weight = b.apply("stop", b.apply("clip", b.input("ratio"), of["clip_low"], of["clip_high"]))
    return b.apply("*", weight, _likelihood(b, of))


def _pulled(b: Builder, of: Mapping[str, int]) -> int:
    drift = b.apply("-", b.input("logp"), b.input("logq"))
    half = b.apply("*", b.number(0.5), of["beta"])
    return b.apply("+", _likelihood(b, of), b.apply("*", half, b.apply("*", drift, drift)))


def _loss(
    name: str,
    doc: str,
    traits: LossTraits,
    formula: tuple[str, ...],
    params: tuple[Param, ...] = (),
    example: str = "",
) -> Builtin:
    """Return a loss under the service's own name."""

    def build(args: Args) -> LossPlan:
        given = {key: args.values[own] for own, key in keys.items()}
        return LossPlan(
            name, {key: value for key, value in given.items() if value.data is not None}
        )

    keys = {param.name: traits.config.get(param.name, param.name) for param in params}
    traits = evolve(traits, config=keys)
    hint = None
    if traits.bounds is not None:
        low, high = traits.bounds
        usual = ("0.0003", "0.9997", "1.0003") if traits.per_sequence else ("0.2", "0.8", "1.2")
        hint = "its range is one of ratios: an ε of {} is `{low} = {}, {high} = {}`".format(
            *usual, low=low, high=high
        )
    own = {"formula": formula, "hint": hint, "traits": traits, "example": example}
    return builtin(name, "loss", doc, build, *params, **own)


LIKELIHOOD = LossPlan("cross_entropy", {})  # of supervised training, and of requests for logprobs
# Its gradient is that of the log-likelihood, weighted by the advantages: each ratio counts as 1.
UNIT_RATIO = LossPlan("cispo", {"clip_low_threshold": 1.0, "clip_high_threshold": 1.0})
DEFAULT_AGGREGATE = AggregatePlan("token_sum", None)
KL_DISCOUNT = share(
    "discount", "above 0 a token also answers for the later ones, discounted by this", 0.0
)


def _aggregate(
    name: str,
    doc: str,
    formula: str,
    token_weight: Callable[[float, float, int | None], float],
    *params: Param,
    **more: str,
) -> Builtin:
    """Return an aggregation, named as in verl; :mod:`rlc.algo.aggregate` computes its weights."""

    def build(args: Args) -> AggregatePlan:
        return AggregatePlan(name, args.values.get("length"))

    own = {"formula": (formula,), "traits": AggregateTraits(SHARED_BY[name], token_weight)}
    return builtin(name, "aggregate", doc, build, *params, **own, **more)


def _reference(args: Args) -> KlPlan:
    final: Any = None if args.final.data is None else args.final  # not a part of most plans
    return KlPlan(**{**args.values, "final": final})


LOSSES = (
    _loss(
        "importance_sampling",
        "policy gradient, corrected for what the sampler's weights were",
        LossTraits(written=_importance),
        ("L = − Σ_t ρ_t A_t", _RATIO),
    ),
    _loss(
        "ppo",
        "importance sampling that stops rewarding a ratio outside the clip range",
        _clip("gradient", written=lambda b, of: _surrogate(b, b.input("ratio"), of)),
        (f"L = − Σ_t min(ρ_t A_t, {_CLIPPED} A_t)", _RATIO),
        _clip_params(0.8, 1.2),
        example=(
            "batch = groups(16, group_size = 8, updates = 2)\n"
            "loss  = ppo(clip_low = 0.8, clip_high = 1.28)"
        ),
    ),
    _loss(
        "cispo",
        "log-likelihood weighted by a clipped ratio; no token loses its gradient",
        _clip("weight", written=_weighted_likelihood),
        (f"L = − Σ_t sg({_CLIPPED}) log p_t A_t", _RATIO, "sg: no gradient"),
        _clip_params(0.0, 4.0),
        example="loss = cispo(clip_high = 5)",
    ),
    _loss(
        "dro",
        "direct reward optimisation: a quadratic pull towards the sampler",
        LossTraits(pull="beta", reaches_prompt=True, written=_pulled),
        (
            "L = − Σ_t (log p_t A_t − β/2 (log p_t − log q_t)²)",
            "t: the sampled tokens; the others get the trainer's own log p_t as their log q_t,",
            "from a forward pass before each gradient, because the service pulls them too",
        ),
        (number("beta", "strength of the pull", 0.05, above=0),),
        example="loss = dro(beta = 0.05)",
    ),
    _loss(
        "gspo",
        "PPO with one ratio for the whole sequence (arXiv 2507.18071)",
        _clip("gradient", per_sequence=True, written=_sequence_ratio),
        (
            "L = − Σ_t min(s_t A_t, clip(s_t, clip_low, clip_high) A_t)",
            "s_t: exp of the mean of log p − log q over the sequence, its gradient on token t",
        ),
        _clip_params(0.9997, 1.0004, "of a sequence"),
        example=("batch = groups(16, group_size = 8, updates = 2)\nloss  = gspo()"),
    ),
    _loss(
        "cross_entropy",
        "log-likelihood weighted by the advantage: the policy gradient without a ratio",
        LossTraits(sampler_logprobs=False, written=_likelihood),
        ("L = − Σ_t A_t log p_t",),
    ),
    _loss(
        "stable_reinforce",
        "REINFORCE kept close to the sampler, for rollouts of older weights (alpha on Tinker)",
        LossTraits(
            pull="kl_coeff", usual_pull=0.01, takes_stale=True, recorded=True, published=False
        ),
        (
            "L = − Σ_t (log p_t A_t − kl_coeff/2 (log p_t − log q_t)²)",
            "t: the sampled tokens; the others contribute nothing",
        ),
        (
            number(
                "kl_coeff",
                "strength of the pull to the sampler; else the service's own",
                None,
                low=0,
            ),
        ),
        example="loss = stable_reinforce()",
    ),
    _aggregate(
        "token_sum",
        "the service's own: every token counts once",
        "L = Σ_i Σ_t l_it",
        lambda *_: 1.0,
    ),
    _aggregate(
        "token_mean",
        "mean over all tokens of the batch (DAPO, arXiv 2503.14476)",
        "L = Σ_i Σ_t l_it / Σ_i n_i",
        lambda _, tokens, __: 1 / tokens,
    ),
    _aggregate(
        "seq_mean_token_sum",
        "mean over sequences of their sums",
        "L = Σ_i Σ_t l_it / B",
        lambda sequences, *_: 1 / sequences,
    ),
    _aggregate(
        "seq_mean_token_mean",
        "mean over sequences of their means, as in GRPO (arXiv 2402.03300)",
        "L = Σ_i (Σ_t l_it / n_i) / B",
        lambda _, tokens, __: 1 / tokens,
    ),
    _aggregate(
        "seq_mean_token_sum_norm",
        "mean over sequences of their sums over one fixed length (Dr. GRPO, arXiv 2503.20783)",
        "L = Σ_i Σ_t l_it / (B length)",
        lambda sequences, _, length: 1 / (sequences * (length or 1)),
        count("length", "the fixed length, usually max_tokens"),
        example=(
            "sampling  = sample(max_tokens = 512)\n"
            "aggregate = seq_mean_token_sum_norm(length = 1_024)"
        ),
    ),
    _aggregate(
        "prompt_mean",
        "mean over tasks of the mean over each one's tokens",
        "L = Σ_p (Σ_i∈p Σ_t l_it / Σ_i∈p n_i) / P",
        lambda _, tokens, __: 1 / tokens,
    ),
    builtin(
        "reference",
        "kl",
        "takes the distance from a reference model off the advantages, token by token",
        _reference,
        text(
            "reference",
            "a base model (`policy.base`), a model, a stage as it ends, or the path of saved "
            "weights",
            file=MODEL_FOLDER,
            also="model",
        ),
        number(
            "coef", "strength; 0: the logprobs are for a loss that reads `ref`", low=0, high=100
        ),
        KL_DISCOUNT,
        optional(
            "final",
            "float",
            "strength in the last step, to which it goes in a straight line; none: that of the "
            "first",
            low=0,
            high=100,
        ),
        formula=(
            "d_t = log q_t − log p_ref,t",
            "A_t = A_t + coef (mean(d) − d_t)",
            "mean(d): over all sampled tokens of the batch",
        ),
        example="kl = reference(policy.base, coef = 0.01)",
    ),
)


def service_loss(stage: Training) -> LossPlan:
    """Return the loss of the service that the gradient of a stage is taken of."""
    return LIKELIHOOD if stage.policy_gradient is None else stage.policy_gradient.loss
