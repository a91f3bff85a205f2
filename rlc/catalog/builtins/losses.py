"""Losses of the training service, from the texts of their formulas; how they add up over tokens;
and the penalty on leaving a reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from rlc.algo import LOSSES as SERVED
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


def _clip(kind: Literal["gradient", "weight"], **more: Any) -> LossTraits:
    return LossTraits(clip=kind, bounds=("clip_low", "clip_high"), takes_stale=True, **more)


_UPDATES = "batch = groups(16, group_size = 8, updates = 2)\nloss  = "
# What the formulas do not say, and an example.
_SERVED = {
    "importance_sampling": (LossTraits(), ""),
    "ppo": (_clip("gradient"), f"{_UPDATES}ppo(clip_low = 0.8, clip_high = 1.28)"),
    "cispo": (_clip("weight"), "loss = cispo(clip_high = 5)"),
    "dro": (LossTraits(pull="beta", reaches_prompt=True), "loss = dro(beta = 0.05)"),
    "gspo": (_clip("gradient", per_sequence=True), f"{_UPDATES}gspo()"),
    "cross_entropy": (LossTraits(sampler_logprobs=False), ""),
    "stable_reinforce": (
        LossTraits(
            pull="kl_coeff", usual_pull=0.01, takes_stale=True, recorded=True, published=False
        ),
        "loss = stable_reinforce()",
    ),
}
_PARAMS = {
    "clip_low": number("clip_low", "smallest ratio of a {} that counts, 1 − ε", low=0),
    "clip_high": number("clip_high", "largest ratio of a {} that counts, 1 + ε", above=0),
    "beta": number("beta", "strength of the pull", above=0),
    "kl_coeff": number(
        "kl_coeff", "strength of the pull to the sampler; else the service's own", low=0
    ),
}


def _loss(name: str, traits: LossTraits, example: str) -> Builtin:
    """Return a loss under the service's own name."""

    def build(args: Args) -> LossPlan:
        given = {key: args.values[own] for own, key in loss.settings.items()}
        return LossPlan(
            name, {key: value for key, value in given.items() if value.data is not None}
        )

    loss, hint = SERVED[name], None
    if traits.bounds is not None:
        low, high = traits.bounds
        usual = ("0.0003", "0.9997", "1.0003") if traits.per_sequence else ("0.2", "0.8", "1.2")
        hint = "its range is one of ratios: an ε of {} is `{low} = {}, {high} = {}`".format(
            *usual, low=low, high=high
        )
    of = "sequence" if traits.per_sequence else "token"
    known = [(_PARAMS[own], default) for own, default in loss.text.defaults.items()]
    params = [evolve(one, doc=one.doc.format(of), default=default) for one, default in known]
    own = {"traits": evolve(traits, config=loss.settings), "formula": loss.formula}
    return builtin(name, "loss", loss.text.doc, build, *params, hint=hint, example=example, **own)


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
    example: str = "",
) -> Builtin:
    """Return an aggregation, named as in verl; :mod:`rlc.algo.aggregate` computes its weights."""

    def build(args: Args) -> AggregatePlan:
        return AggregatePlan(name, args.values.get("length"))

    traits = AggregateTraits(SHARED_BY[name], token_weight)
    own = {"formula": (formula,), "traits": traits, "example": example}
    return builtin(name, "aggregate", doc, build, *params, **own)


def _reference(args: Args) -> KlPlan:
    final: Any = None if args.final.data is None else args.final  # not a part of most plans
    return KlPlan(**{**args.values, "final": final})


LOSSES = (
    *(_loss(name, *known) for name, known in _SERVED.items()),
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
