"""What a plan expects: of the job before it runs, and of the run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rlc.explanation.layout import ROOM, Lines
from rlc.lang.render import Paint
from rlc.plan import ExpectationPlan, ExpectationResult, Plan, QuantityPlan
from rlc.pricing import judged_before
from rlc.records import asdict

_VERDICTS = {True: "passes", False: "fails", None: "not checked"}
_OVER = {"last": "at the end", "first": "at first", "mean": "on average", "sum": "in total"}
_OVER |= {"min": "at its lowest", "max": "at its highest"}


def expectation_lines(plan: Plan, paint: Paint) -> Lines:
    """A line each: when it is checked, and whether it passes."""
    judged = list(_judged(plan))
    width = max((len(one.text) for one, _ in judged), default=0)
    for one, found in judged:
        said = f"{_VERDICTS[found.holds]}: {found.said}" if found else _when(one, plan)
        origin = plan.provenance.get(f"expect {one.compared}", "")
        line = f"{one.text:{width}}   {said}"
        if len(line) + 3 + len(origin) <= ROOM:
            yield f"{line}   {paint.dim(origin)}"
        else:
            yield from (line, f"{'':{width}}   {paint.dim(origin)}")


def expectation_dicts(plan: Plan) -> list[dict[str, Any]]:
    """The same as plain data; one that is checked after the run has no ``holds`` yet."""
    return [
        {"text": one.text, "held": "after" if found is None else "before"}
        | ({} if found is None else asdict(found))
        for one, found in _judged(plan)
    ]


def _judged(plan: Plan) -> Iterator[tuple[ExpectationPlan, ExpectationResult | None]]:
    before: Sequence[tuple[ExpectationPlan, ExpectationResult]] = list(judged_before(plan))
    known = {one.text: judged for one, judged in before}
    for one in plan.expectations:
        judged = known.get(one.text)
        if judged is not None and plan.rehearses:
            judged = one.unknown("a rehearsal is smaller")
        yield one, judged


def _when(one: ExpectationPlan, plan: Plan) -> str:
    if plan.rehearses:
        return "not checked: a rehearsal need not learn"
    return f"after the run: {_measured(one.quantity)}"


def _measured(quantity: QuantityPlan) -> str:
    return f"{quantity.key} of {quantity.stage}, {_OVER[quantity.over or 'last']}"
