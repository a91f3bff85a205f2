"""What a sweep is made of: ranges to draw from, and searches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from rlc.catalog.records import Args, Param, builtin, optional

if TYPE_CHECKING:
    from rlc.plan import RangePlan, SearchPlan


# Most recipes have no sweep, and are checked without its records.


def _range(scale: Literal["linear", "log"]) -> Callable[[Args], RangePlan]:
    def build(args: Args) -> RangePlan:
        step: Any = args.values.get("step")
        given = [args.low, args.high, *([step] if step is not None and step.data else [])]
        from rlc.plan import RangePlan

        whole = all(float(value.data).is_integer() for value in given) and scale == "linear"
        return RangePlan(scale, args.low, args.high, step, whole)

    return build


def _search(kind: str, **given: Any) -> Callable[[Args], SearchPlan]:
    """Make a search of its arguments, which have the names of the record's fields."""

    def build(args: Args) -> SearchPlan:
        from rlc.plan import SearchPlan

        return SearchPlan(kind, **{"n": None, **args.values, **given})

    return build


def _tried(rates: str, search: str) -> str:
    """An example of a sweep over learning rates."""
    over = f"{{ main.optimizer.learning_rate = {rates} }}"
    return f"of     = main\nover   = {over}\nsearch = {search}"


AXES = (
    builtin(
        "range",
        "axis",
        "numbers from low to high, all equally likely; whole ones if its arguments are whole",
        _range("linear"),
        Param("low", "float", "the smallest"),
        Param("high", "float", "the largest"),
        optional("step", "float", "only every so many; none: any", above=0),
        example=_tried("range(1e-5, 1e-4)", "random(20)"),
    ),
    builtin(
        "log",
        "axis",
        "numbers from low to high, whose logarithms are all equally likely",
        _range("log"),
        Param("low", "float", "the smallest", above=0),
        Param("high", "float", "the largest", above=0),
        example=_tried("log(1e-5, 1e-3)", "random(20)"),
    ),
)

_N = Param("n", "int", "configurations that are tried", low=1, high=10_000)

SEARCHES = (
    builtin(
        "grid",
        "search",
        "every configuration of the axes",
        _search("grid"),
        example=_tried("[1e-5, 4e-5, 1e-4]", "grid()"),
    ),
    builtin(
        "random",
        "search",
        "configurations sampled at random, none twice (Optuna's RandomSampler)",
        _search("random"),
        _N,
        example=_tried("log(1e-5, 1e-3)", "random(20)"),
    ),
    builtin(
        "tpe",
        "search",
        "configurations sampled where the best ones so far were dense, after the first ten, which "
        "are random (Optuna's TPESampler, NeurIPS 2011)",
        _search("tpe", learns=True),
        _N,
        aliases="bayes bayesian optuna",
        example=_tried("log(1e-5, 1e-3)", "tpe(20)"),
    ),
    builtin(
        "halving",
        "search",
        "configurations of which only the best of each eta go on at every rung, as evaluated "
        "during the stage (Optuna's SuccessiveHalvingPruner, arXiv 1810.05934)",
        _search("halving"),
        Param("eta", "int", "one of so many goes on", 3, low=2, high=100),
        optional(
            "n", "int", "configurations, sampled at random; none: every one", low=1, high=10_000
        ),
        optional("first", "int", "steps to the first rung; none: to the first evaluation", low=1),
        aliases="asha hyperband sha",
        example=_tried("log(1e-5, 1e-3)", "halving(eta = 3, n = 9)"),
    ),
)
