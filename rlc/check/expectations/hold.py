"""Whether expectations hold that are known before a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlc.check.expectations.read import CheckedExpectation
from rlc.check.stages import CheckedStage
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.lang.source import Span
from rlc.plan.expectations import QuantityPlan, shown
from rlc.pricing.quantities import Estimated


def report_expectations(
    expectations: Sequence[CheckedExpectation],
    stages: Sequence[CheckedStage],
    recipe: str,
    found: Diagnostics,
) -> None:
    """Report those that do not hold, and those of which it is not known."""
    known = [one for one in expectations if not one.plan.after]
    by_name = {stage.name: stage for stage in stages}
    estimated = Estimated(tuple(stage.plan() for stage in stages), recipe) if known else None
    for one in known:
        assert estimated is not None
        judged, unit = one.plan.judged(estimated.value), one.plan.quantity.unit
        if judged.holds is None:
            unknown = next(q for q in one.plan.quantities if estimated.value(q) is None)
            message = f"`{unknown.path}` is not known, so this expectation is not held"
            advice = "not all of its prices are known; `rlc explain` shows which"
            if not unknown.key.startswith("cost"):
                advice = "the batch counts turns, and an episode may have any number of them"
            found.warning("RL0675", one.span, message, advice)
        elif not judged.holds:
            assert judged.found is not None
            assert judged.expected is not None
            message = (
                f"`{one.plan.quantity.path}` is {shown(judged.found, unit)}, where "
                f"`{one.plan.op} {shown(judged.expected, unit)}` is expected"
            )
            labels = [
                Label(place, "its value")
                for quantity in one.plan.quantities
                if (place := _place(quantity, by_name)) is not None
            ]
            found.error("RL0674", one.span, message, _advice(one, estimated), *labels[:1])


def _place(quantity: QuantityPlan, stages: Mapping[str, CheckedStage]) -> Span | None:
    """Where the recipe says a value."""
    if quantity.kind != "value":
        return None
    return stages[quantity.stage or ""].origins.at(quantity.key)


def _advice(one: CheckedExpectation, estimated: Estimated) -> str:
    """What a number is made of, the largest part first."""
    quantity = one.plan.quantity
    parts = sorted(estimated.parts(quantity).items(), key=lambda part: -part[1])
    if not parts:
        return "change the value, or what is expected of it"
    said = (f"{kind} {shown(number, quantity.unit)}" for kind, number in parts[:4])
    return f"{', '.join(said)}; `rlc explain` shows what it is made of"
