"""Expectations that are known after a run: judged by what the journal has of its stages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from rlc.plan import ExpectationPlan, ExpectationResult, Over, QuantityPlan

_OVER: Mapping[Over, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
    "min": min,
    "max": max,
    "mean": fmean,
    "sum": sum,
}


def judged_after(
    expectations: Sequence[ExpectationPlan],
    records_of: Callable[[str], Sequence[Mapping[str, Any]]],
    is_done: Callable[[str], bool],
    ended: bool,
    rehearses: bool,
) -> tuple[ExpectationResult, ...]:
    """Judge the expectations that are known after a run.

    Args:
        expectations: those of the plan; others are left out.
        records_of: the metrics of a stage, in the order of its steps or evaluations.
        is_done: whether all of a stage is there.
        ended: whether the run has come to its end, or to its budget: what it has not measured then
            it never will, and the expectation does not hold.
        rehearses: nothing is held of a rehearsal, which need not learn.
    """

    def value(quantity: QuantityPlan) -> float | None:
        assert quantity.stage is not None
        assert quantity.over is not None
        values = [float(r[quantity.key]) for r in records_of(quantity.stage) if quantity.key in r]
        return _OVER[quantity.over](values) if values else None

    def judge(one: ExpectationPlan) -> ExpectationResult:
        if rehearses:
            return one.unknown("a rehearsal need not learn")
        if all(is_done(quantity.stage or "") for quantity in one.quantities):
            judged = one.judged(value)
            return judged if judged.holds is not None else one.unknown("it was not measured", False)
        if ended:
            return one.unknown("the run ended before it was measured", False)
        return one.unknown("the run has not come to it")

    return tuple(judge(one) for one in expectations if one.after)
