"""Parts that advantage presets share: parameters, and the steps of a scheme."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlc.algo.scheme import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Clip,
    Returns,
    Scale,
    WeightedSum,
)
from rlc.catalog.records import Args, Builtin, Param, share, word
from rlc.records import evolve

SCOPES = ("group", "role", "env", "batch_role", "batch")
EPISODE = Returns("episode", 1.0)


SCOPE = word("scope", "which rollouts are compared", SCOPES, "group", noun="scope")
IN_ROLE = evolve(SCOPE, default="role")
SINGLETON = word(
    "singleton", "what a scope with one value gets", ("zero", "raw", "drop", "error"), "zero"
)
CONSTANT = word("constant", "what becomes of a group of equals", ("keep", "drop"), "keep")
SCALED = word(
    "scale",
    "divide by the standard deviation or not",
    ("std", "none"),
    "std",
    aliases="scale_rewards norm_adv_by_std_in_grpo normalize_advantage",
)


def eps(default: float, only_if: tuple[str, tuple[str, ...]] | None = None) -> Param:
    doc = "added to the divisor"
    return Param("eps", "float", doc, default, low=0, high=1, only_if=only_if)


def gamma(default: float | None) -> Param:
    return share("gamma", "discount of the next turn", default, aliases="discount_factor")


def preset(
    name: str,
    doc: str,
    steps: Callable[[Args], Iterable[AdvantageStep]],
    *params: Param,
    returns: Returns = EPISODE,
    constant: Any = "keep",
    example: str = "",
) -> Builtin:
    """A preset with the steps that ``steps`` makes of its arguments. If it has a parameter
    ``gamma``, that discounts the return of each turn; a parameter ``constant`` overrides
    ``constant`` here."""

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
    constant: Any = "keep",
) -> Builtin:
    """A preset with a ``scope``, its last parameter."""
    return preset(name, doc, steps, *params, scope, constant=constant)


def when(condition: bool, *steps: AdvantageStep) -> tuple[AdvantageStep, ...]:
    """The steps if ``condition`` holds, else none."""
    return steps if condition else ()


def mean(over: Any, singleton: Any = "zero", weight: Any = "value") -> Baseline:
    return Baseline("mean", over, weight, singleton)


def leave_one_out(over: Any, singleton: Any = "zero") -> Baseline:
    return Baseline("leave_one_out", over, "value", singleton)


def length_weighted(over: Any, singleton: Any = "zero") -> Baseline:
    return Baseline("length_weighted", over, "tokens", singleton)


def best_margin(over: Any, singleton: Any = "zero") -> tuple[Baseline, Clip]:
    """The best one gets its lead over the second best, the others nothing."""
    return Baseline("best_of_others", over, "value", singleton), Clip(0.0, None)


def std(over: Any, eps: Any, ddof: Any = 1, kind: Any = "std", **rest: Any) -> Scale:
    return Scale(kind, over, "value", ddof, eps, "outside", **rest)


def by_mean(over: Any, eps: Any) -> Scale:
    """Divide by the mean of the returns, as they were before anything was subtracted."""
    return Scale("mean", over, "value", 1, eps, "outside", of="returns")


def nonzero_share(over: Any) -> Scale:
    return Scale("nonzero_share", over, "value", 1, 0.0, "outside", of="returns")


def whitened(ddof: int, place: Any) -> tuple[Baseline, Scale]:
    """To mean 0 and deviation 1 over all tokens of the batch."""
    return mean("batch", weight="tokens"), Scale("std", "batch", "tokens", ddof, 1e-8, place)


def one_by_one(*apart: AdvantageStep, summed: Iterable[AdvantageStep]) -> tuple[AdvantageStep, ...]:
    """The components of the reward normalised each by itself, then their weighted sum (GDPO)."""
    return (*apart, WeightedSum(), *summed)
