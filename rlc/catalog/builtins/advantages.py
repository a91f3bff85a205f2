"""Advantage schemes: presets, and the steps that other schemes are put together from.

A preset is a name for a record; rlc.algo.advantages computes what these records say, and
rlc.explanation.schemes prints them. The dialects of libraries are in dialects.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlc.algo import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Clip,
    Returns,
    RunningBaseline,
    Scale,
    WeightedSum,
)
from rlc.catalog.records import Args, Builtin, Param, builtin, number, optional, share, word
from rlc.records import evolve

SCOPES = ("group", "role", "env", "batch_role", "batch")
EPISODE = Returns("episode", 1.0)


SCOPE = word("scope", "which rollouts are compared", SCOPES, "group", noun="scope")
IN_ROLE = evolve(SCOPE, default="role")
SINGLETON = word(
    "singleton", "what a scope with one value gets", ("zero", "raw", "drop", "error"), "zero"
)
CONSTANT = word("constant", "what becomes of a group of equals", ("keep", "drop"), "keep")
SCALED = word("scale", "divide by the standard deviation or not", ("std", "none"), "std")


def eps(default: float, only_if: tuple[str, tuple[str, ...]] | None = None) -> Param:
    doc = "added to the divisor"
    return number("eps", doc, default, low=0, high=1, only_if=only_if)


def gamma(default: float | None) -> Param:
    return share("gamma", "discount of the next turn", default)


def preset(
    name: str,
    doc: str,
    steps: Callable[[Args], Iterable[AdvantageStep]],
    *params: Param,
    returns: Returns = EPISODE,
    constant: Any = "keep",
    example: str = "",
) -> Builtin:
    """Return a preset with the ``steps`` of its arguments. A parameter ``gamma`` discounts the
    return of each turn, a parameter ``constant`` overrides ``constant`` here."""

    def build(args: Args) -> AdvantageScheme:
        gamma = args.values.get("gamma")
        own = returns if gamma is None or gamma.data is None else Returns("turn", args.gamma)
        kept = args.values.get("constant", constant)
        return AdvantageScheme(name, own, tuple(steps(args)), kept)

    return Builtin(name, "advantage", doc, build, params, example=example)


def scoped(
    name: str,
    doc: str,
    steps: Callable[[Args], Iterable[AdvantageStep]],
    *params: Param,
    scope: Param = SCOPE,
    **more: Any,
) -> Builtin:
    """Return a preset with a ``scope``, its last parameter."""
    return preset(name, doc, steps, *params, scope, **more)


def when(condition: bool, *steps: AdvantageStep) -> tuple[AdvantageStep, ...]:
    """Return the steps if ``condition`` holds, else none."""
    return steps if condition else ()


def mean(over: Any, singleton: Any = "zero", weight: Any = "value") -> Baseline:
    return Baseline("mean", over, weight, singleton)


def leave_one_out(over: Any, singleton: Any = "zero") -> Baseline:
    return Baseline("leave_one_out", over, "value", singleton)


def length_weighted(over: Any, singleton: Any = "zero") -> Baseline:
    return Baseline("length_weighted", over, "tokens", singleton)


def best_margin(over: Any, singleton: Any = "zero") -> tuple[Baseline, Clip]:
    """Give the best one its lead over the second best, and the others nothing."""
    return Baseline("best_of_others", over, "value", singleton), Clip(0.0, None)


def std(over: Any, eps: Any, ddof: Any = 1, kind: Any = "std", **rest: Any) -> Scale:
    return Scale(kind, over, "value", ddof, eps, "outside", **rest)


def by_mean(over: Any, eps: Any) -> Scale:
    """Divide by the mean of the returns, as they were before anything was subtracted."""
    return Scale("mean", over, "value", 1, eps, "outside", of="returns")


def nonzero_share(over: Any) -> Scale:
    return Scale("nonzero_share", over, "value", 1, 0.0, "outside", of="returns")


def whitened(ddof: int, place: Any) -> tuple[Baseline, Scale]:
    """Scale to mean 0 and deviation 1 over all tokens of the batch."""
    return mean("batch", weight="tokens"), Scale("std", "batch", "tokens", ddof, 1e-8, place)


def one_by_one(*apart: AdvantageStep, summed: Iterable[AdvantageStep]) -> tuple[AdvantageStep, ...]:
    """Normalise each component of the reward by itself, then add them by their weights (GDPO)."""
    return (*apart, WeightedSum(), *summed)


_OVER = word("over", "which values are compared", SCOPES, noun="scope")
_WEIGHT = word("weight", "count each value once, or by its tokens", ("value", "tokens"), "value")


PRESETS = (
    scoped(
        "grpo",
        "episode return less the group's mean, over the group's spread (arXiv 2402.03300)",
        lambda args: [
            mean(args.scope, args.singleton),
            *when(args.scale.data == "std", std(args.scope, args.eps)),
        ],
        SCALED,
        eps(1e-6, only_if=("scale", ("std",))),
        SINGLETON,
        CONSTANT,
    ),
    scoped(
        "center",
        "episode return less the group's mean",
        lambda args: [mean(args.scope, args.singleton)],
        SINGLETON,
        CONSTANT,
    ),
    scoped(
        "dr_grpo",
        "episode return less the group's mean, not scaled (Dr. GRPO, arXiv 2503.20783)",
        lambda args: [mean(args.scope)],
    ),
    scoped(
        "rloo",
        "episode return less the mean of the others in the group (arXiv 2402.14740)",
        lambda args: [leave_one_out(args.scope, args.singleton)],
        SINGLETON,
        CONSTANT,
    ),
    preset(
        "rae",
        "episode return less a moving average for its role (arXiv 2506.24119)",
        lambda args: [RunningBaseline(args.decay)],
        number("decay", "what each return leaves of the average", 0.95, low=0, below=1),
    ),
    preset("reinforce", "the episode return itself, without a baseline", lambda _: []),
    preset(
        "reinforce_pp",
        "return of each turn, whitened over the batch's tokens (REINFORCE++, arXiv 2501.03262)",
        lambda _: whitened(1, "inside"),
        gamma(1.0),
    ),
    scoped(
        "reinforce_pp_baseline",
        "episode return less the group's mean, whitened over the batch's tokens (arXiv 2501.03262)",
        lambda args: [mean(args.scope, "raw"), *whitened(1, "inside")],
    ),
    preset(
        "rebn",
        "discounted return of each turn, normalised over the batch (GEM, arXiv 2510.01051)",
        lambda args: [mean("batch"), std("batch", args.eps)],
        gamma(0.9),
        eps(1e-9),
    ),
    scoped(
        "opo",
        "episode return less the group's length-weighted mean (arXiv 2505.23585)",
        lambda args: [length_weighted(args.scope)],
    ),
    scoped(
        "maxrl",
        "episode return less the group's mean, over that mean (arXiv 2602.02710)",
        lambda args: [mean(args.scope), by_mean(args.scope, args.eps)],
        eps(1e-6),
    ),
    scoped(
        "grpo_passk",
        "the group's best gets its lead over the second best, the others nothing "
        "(pass@k training, arXiv 2503.19595)",
        lambda args: [
            *best_margin(args.scope),
            *when(args.scale.data == "std", std(args.scope, args.eps, of="returns")),
        ],
        SCALED,
        eps(1e-6, only_if=("scale", ("std",))),
    ),
    scoped(
        "gpg",
        "episode return less the group's mean, over the share of returns that are not 0 "
        "(arXiv 2504.02546)",
        lambda args: [mean(args.scope), nonzero_share("batch")],
    ),
    scoped(
        "gdpo",
        "each component of the reward normalised within its group, their weighted sum over the "
        "batch (GDPO, arXiv 2601.05242)",
        lambda args: one_by_one(
            mean(args.scope, args.singleton),
            *when(args.scale.data == "std", std(args.scope, args.eps)),
            summed=(mean("batch"), std("batch", args.eps)),
        ),
        SCALED,
        eps(1e-6),
        SINGLETON,
        CONSTANT,
    ),
    preset(
        "returns",
        "without gamma one return for each episode; with gamma a discounted return for each turn",
        lambda _: [],
        evolve(gamma(None), optional=True),
        CONSTANT,
        example="advantage = returns(gamma = 0.95) |> baseline(leave_one_out, over = group)",
    ),
)


def _baseline(args: Args) -> Baseline:
    """Return a baseline, by default weighted as its kind is defined: some by tokens."""
    weight = args.weight
    if weight.data is None:
        weight = evolve(weight, data="tokens" if args.kind.data == "length_weighted" else "value")
    return Baseline(args.kind, args.over, weight, args.singleton)


def _scale(args: Args) -> Scale:
    """Return a scale, by default of the values for a deviation, else of the returns."""
    of = args.of
    if of.data is None:
        deviation = args.kind.data in ("std", "std_of_others", "rms")
        of = evolve(of, data="values" if deviation else "returns")
    return Scale(**{**args.values, "of": of})


STEPS = (
    builtin(
        "baseline",
        "step",
        "subtract what the peers got",
        _baseline,
        word(
            "kind",
            "how the peers are averaged, or that the best of the others counts",
            ("mean", "leave_one_out", "length_weighted", "best_of_others"),
            noun="baseline",
        ),
        _OVER,
        evolve(_WEIGHT, default=None, optional=True),
        SINGLETON,
        example="advantage = returns() |> baseline(mean, over = group)",
    ),
    builtin(
        "scale",
        "step",
        "divide by the peers' spread, by their mean, or by the share that is not 0",
        _scale,
        word(
            "kind",
            "what to divide by",
            ("std", "std_of_others", "rms", "mean", "nonzero_share"),
            noun="scale",
        ),
        _OVER,
        eps(1e-6),
        _WEIGHT,
        Param("ddof", "int", "1 for the unbiased deviation, 0 for the biased", 1, low=0, high=1),
        word(
            "eps_place",
            "add eps outside or inside the root, or take it as the smallest variance",
            ("outside", "inside", "clamp"),
            "outside",
        ),
        optional(
            "of",
            "word",
            "measure the values as they are here, or the returns; by default as the kind needs",
            choices=("values", "returns"),
        ),
        share("tolerance", "what is no larger counts as 0", 0.0),
        example="advantage = returns() |> baseline(mean, over = group) |> scale(std, over = batch)",
    ),
    builtin(
        "clip",
        "step",
        "limit the advantage",
        lambda args: Clip(args.low, args.high),
        optional("low", "float", "smallest advantage; none: no limit", high=0),
        optional("high", "float", "largest advantage; none: no limit", low=0),
        example="advantage = returns() |> baseline(mean, over = group) |> clip(-5, 5)",
    ),
    builtin(
        "weighted_sum",
        "step",
        "add up the components of the reward by their weights, each of which the steps before are "
        "applied to by itself",
        lambda _: WeightedSum(),
        example=(
            'env = rows("prompts.jsonl", grader = {\n'
            '  right = grade_with("rewards.py:right")\n'
            '  brief = 0.2 * grade_with("rewards.py:brief")\n'
            "})\n"
            "advantage = returns() |> baseline(mean, over = group) |> weighted_sum()"
        ),
    ),
)

# Names known elsewhere for what is impossible to express here, with the reason.
_REASONS = {
    ("gae", "verl.gae", "openrlhf.gae", "vapo", "spo"): (
        "it needs a learned value head, which the training service does not have"
    ),
    ("nemo.gdpo",): "`gdpo()` normalises each component of the reward by itself",
    ("remax", "verl.remax"): (
        "its baseline is a greedy rollout of each task, and all rollouts are sampled alike; "
        "`rloo()` has a baseline without one"
    ),
    ("prime.rae", "spiral.rae"): "it is `rae()`, whose average takes the returns of a step at once",
    ("dual_clip", "sapo", "gmpo", "dppo", "clip_cov"): (
        "the service has no such loss: it is one of your own, and `recipes/lib/losses.rl` has it"
    ),
    ("kl_cov", "luspo", "vespo"): (
        "the service has no such loss: write it as one of your own, `loss name { token = … }`"
    ),
    ("gpg_loss",): "it is `cross_entropy()`, with `gpg()` as the advantage",
    ("entropy_bonus",): (
        "it needs the logits of all tokens, and the service tells the sampled one's"
    ),
    ("kl_loss", "low_var_kl"): (
        "a KL term is part of a loss of your own, such as `ppo_k3()` of `recipes/lib/losses.rl`; "
        "`kl = reference(…)` takes the distance off the advantages"
    ),
    ("tis", "mis"): (
        "it needs the learner's logprobs before the step; `cispo()` truncates the ratio as well"
    ),
}
UNSUPPORTED = {name: reason for names, reason in _REASONS.items() for name in names}
