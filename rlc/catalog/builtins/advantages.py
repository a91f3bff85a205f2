"""Advantage schemes: those written in the language (:mod:`rlc.algo.texts`), presets and the
dialects of libraries, and the steps that follow a scheme in a recipe.

A dialect names the version that it equals, also with several turns and roles. Two things are
deliberately not copied. A group of equal returns gives exact zeros here, where floating-point noise
divided by itself gives some libraries advantages of up to 1; and a reward that is not a number is
refused. What else differs is said where it does.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlc.algo import (
    SCOPES,
    AdvantageScheme,
    Baseline,
    Clip,
    FormulaText,
    Returns,
    Scale,
    WeightedSum,
    formula_texts,
    scheme_of,
    scheme_of_function,
    scheme_of_returns,
)
from rlc.catalog.builtins.sources import ARGS, function
from rlc.catalog.records import (
    Args,
    Builtin,
    Param,
    builtin,
    number,
    optional,
    share,
    word,
)
from rlc.records import evolve

_LEVELS = ("group", "batch", "none")
_SOME_LEVEL = tuple(level for level in _LEVELS if level != "none")


def _switch(name: str, doc: str) -> Param:
    return Param(name, "bool", doc, True)


SINGLETON = word(
    "singleton", "what a scope with one value gets", ("zero", "raw", "drop", "error"), "zero"
)
CONSTANT = word("constant", "what becomes of a group of equals", ("keep", "drop"), "keep")
_EPS = number("eps", "added to the divisor", low=0, high=1)
_GAMMA = share("gamma", "discount of the next turn", None)
# What the parameters in the heads of the texts are; their defaults stand there.
_PARAMS = {
    param.name: param
    for param in (
        word("scope", "which rollouts are compared", SCOPES, "group", noun="scope"),
        SINGLETON,
        CONSTANT,
        word("scale", "divide by the standard deviation or not", ("std", "none"), "std"),
        _EPS,
        _GAMMA,
        number("decay", "what each return leaves of the average", 0.95, low=0, below=1),
        _switch("norm", "divide by the standard deviation"),
        _switch("normalize", "divide by the standard deviation"),
        _switch("leave_one_out", "take the statistics of the others only"),
        _switch("minus_baseline", "subtract the group's mean"),
        _switch("drop_constant", "leave groups of equal returns out"),
        _switch("unbiased", "divide squares by n - 1, not n"),
        word("scale_rewards", "over what the spread is taken", _LEVELS, "group"),
        word("mean_level", "over what the mean is taken", _LEVELS, "batch"),
        word("std_level", "over what the deviation is taken", _LEVELS, "batch"),
    )
}
# Parameters that have an effect only with some values of another.
_ONLY_IF = {
    ("grpo", "eps"): ("scale", ("std",)),
    ("grpo_passk", "eps"): ("scale", ("std",)),
    ("areal.normalize", "leave_one_out"): ("mean_level", _SOME_LEVEL),
    ("areal.normalize", "unbiased"): ("std_level", _SOME_LEVEL),
    ("areal.normalize", "eps"): ("std_level", _SOME_LEVEL),
}


def written(text: FormulaText) -> Builtin:
    """Return the builtin of an advantage that is written in the language."""

    def build(args: Args) -> AdvantageScheme:
        given = {name: value.data for name, value in args.values.items()}
        reader = text.read("advantage", given)
        return scheme_of(text.name, reader.builder, reader.parts, dict(args.values))

    return Builtin(text.name, "advantage", text.doc, build, tuple(_params(text)))


def _params(text: FormulaText) -> Iterator[Param]:
    for name, default in text.defaults.items():
        yield evolve(_PARAMS[name], default=default, only_if=_ONLY_IF.get((text.name, name)))


def _returns(args: Args) -> AdvantageScheme:
    gamma = args.values["gamma"].data
    unit = Returns("episode", 1.0) if gamma is None else Returns("turn", gamma)
    scheme = scheme_of_returns("returns", unit, args.values["constant"].data)
    return evolve(scheme, args=dict(args.values))


PRESETS = (
    *map(written, formula_texts("advantage").values()),
    Builtin(
        "returns",
        "advantage",
        "without gamma one return for each episode; with gamma a discounted return for each turn",
        _returns,
        (evolve(_GAMMA, optional=True), CONSTANT),
        example="advantage = returns(gamma = 0.95) |> baseline(leave_one_out, over = group)",
    ),
    builtin(
        "python",
        "advantage",
        "a function of one's own that gives the advantages of a whole batch",
        lambda args: scheme_of_function("python", args.function, args.args),
        function("function", "advantage"),
        ARGS,
        example='advantage = python("credit.py:advantages", args = { decay = 0.9 })',
    ),
)

_OVER = word("over", "which values are compared", SCOPES, noun="scope")
_WEIGHT = word("weight", "count each value once, or by its tokens", ("value", "tokens"), "value")


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
        evolve(_EPS, default=1e-6),
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
