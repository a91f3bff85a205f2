"""Advantage schemes: presets, and the steps that other schemes are put together from.

Formulas and sources: rlc.algo.advantages computes what these records say.
"""

from __future__ import annotations

from typing import Any

from rlc.algo.scheme import AdvantageScheme, Baseline, Clip, Returns, Scale
from rlc.catalog.records import Args, Builtin, Param
from rlc.record import evolve

_SCOPES = ("group", "env", "batch")
_WEIGHTS = ("value", "tokens")
_SINGLETONS = ("zero", "raw", "drop", "error")
_EPISODE = Returns("episode", 1.0)


def _word(name: str, doc: str, choices: tuple[str, ...], default: Any) -> Param:
    return Param(name, "word", doc, default, choices=choices)


_SINGLETON = _word("singleton", "what a scope with one value gets", _SINGLETONS, "zero")
_CONSTANT = _word("constant", "what becomes of a group of equals", ("keep", "drop"), "keep")
_OVER = Param("over", "word", "which values are compared", choices=_SCOPES, noun="scope")
_WEIGHT = _word("weight", "count each value once, or by its tokens", _WEIGHTS, "value")
_GAMMA = Param("gamma", "float", "discount of the next turn", low=0, high=1)


def _eps(default: float) -> Param:
    return Param("eps", "float", "added to the divisor", default, low=0, high=1)


def _mean(over: str, weight: str = "value", singleton: Any = "zero") -> Baseline:
    return Baseline("mean", over, weight, singleton)  # type: ignore[arg-type]


def _std(over: str, weight: str, eps: Any, place: str) -> Scale:
    return Scale("std", over, weight, 1, eps, place)  # type: ignore[arg-type]


def _scheme(name: str, returns: Returns, *steps: Any, constant: Any = "keep") -> AdvantageScheme:
    return AdvantageScheme(name, returns, steps, constant)


def _grpo(args: Args) -> AdvantageScheme:
    steps: list[Any] = [_mean("group", singleton=args.singleton)]
    if args.scale.data == "std":
        steps.append(_std("group", "value", args.eps, "outside"))
    return _scheme("grpo", _EPISODE, *steps, constant=args.constant)


def _returns(args: Args) -> AdvantageScheme:
    if args.gamma.data is None:
        return _scheme("returns", _EPISODE, constant=args.constant)
    return _scheme("returns", Returns("turn", args.gamma), constant=args.constant)


def _baseline(args: Args) -> Baseline:
    """Without ``weight`` each kind counts as it is defined: ``length_weighted`` by tokens."""
    weight = args.weight
    if weight.data is None:
        weight = evolve(weight, data="tokens" if args.kind.data == "length_weighted" else "value")
    return Baseline(args.kind, args.over, weight, args.singleton)


PRESETS = (
    Builtin(
        "grpo",
        "advantage",
        "episode return less the group's mean, over the group's spread (arXiv 2402.03300)",
        _grpo,
        (
            _word(
                "scale", "divide by the group's standard deviation or not", ("std", "none"), "std"
            ),
            _eps(1e-6),
            _SINGLETON,
            _CONSTANT,
        ),
    ),
    Builtin(
        "dr_grpo",
        "advantage",
        "episode return less the group's mean, not scaled (Dr. GRPO, arXiv 2503.20783)",
        lambda _: _scheme("dr_grpo", _EPISODE, _mean("group")),
    ),
    Builtin(
        "rloo",
        "advantage",
        "episode return less the mean of the others in the group (arXiv 2402.14740)",
        lambda _: _scheme("rloo", _EPISODE, Baseline("leave_one_out", "group", "value", "zero")),
    ),
    Builtin(
        "reinforce",
        "advantage",
        "the episode return itself, without a baseline",
        lambda _: _scheme("reinforce", _EPISODE),
    ),
    Builtin(
        "rebn",
        "advantage",
        "discounted return of each turn, normalised over the batch (GEM, arXiv 2510.01051)",
        lambda args: _scheme(
            "rebn",
            Returns("turn", args.gamma),
            _mean("batch"),
            _std("batch", "value", args.eps, "outside"),
        ),
        (Param("gamma", "float", "discount of the next turn", 0.9, low=0, high=1), _eps(1e-9)),
    ),
    Builtin(
        "opo",
        "advantage",
        "episode return less the group's length-weighted mean (arXiv 2505.23585)",
        lambda _: _scheme("opo", _EPISODE, Baseline("length_weighted", "group", "tokens", "zero")),
    ),
    Builtin(
        "reinforce_pp_baseline",
        "advantage",
        "episode return less the group's mean, whitened over the batch's tokens (arXiv 2501.03262)",
        lambda _: _scheme(
            "reinforce_pp_baseline",
            _EPISODE,
            _mean("group", singleton="raw"),
            _mean("batch", weight="tokens"),
            _std("batch", "tokens", 1e-8, "inside"),
        ),
    ),
    Builtin(
        "maxrl",
        "advantage",
        "episode return less the group's mean, over that mean (arXiv 2602.02710)",
        lambda args: _scheme(
            "maxrl",
            _EPISODE,
            _mean("group"),
            Scale("mean", "group", "value", 1, args.eps, "outside"),
        ),
        (_eps(1e-6),),
    ),
    Builtin(
        "returns",
        "advantage",
        "without gamma one return for each episode; with gamma a discounted return for each turn",
        _returns,
        (
            Param(
                "gamma", "float", "discount of the next turn", None, low=0, high=1, optional=True
            ),
            _CONSTANT,
        ),
    ),
)

STEPS = (
    Builtin(
        "baseline",
        "step",
        "subtract what the peers got",
        _baseline,
        (
            Param(
                "kind",
                "word",
                "how the peers are averaged",
                choices=("mean", "leave_one_out", "length_weighted"),
                noun="baseline",
            ),
            _OVER,
            evolve(_WEIGHT, default=None, optional=True),
            _SINGLETON,
        ),
    ),
    Builtin(
        "scale",
        "step",
        "divide by the peers' spread, or by their mean return",
        lambda args: Scale(args.kind, args.over, args.weight, args.ddof, args.eps, args.eps_place),
        (
            Param("kind", "word", "what to divide by", choices=("std", "mean"), noun="scale"),
            _OVER,
            _eps(1e-6),
            _WEIGHT,
            Param(
                "ddof", "int", "1 for the unbiased deviation, 0 for the biased", 1, low=0, high=1
            ),
            _word(
                "eps_place", "add eps outside or inside the root", ("outside", "inside"), "outside"
            ),
        ),
    ),
    Builtin(
        "clip",
        "step",
        "limit the advantage",
        lambda args: Clip(args.low, args.high),
        (
            Param("low", "float", "smallest advantage", high=0),
            Param("high", "float", "largest advantage", low=0),
        ),
    ),
)


# Known elsewhere and impossible to express here, each with the reason.
UNSUPPORTED: dict[str, str] = {}
