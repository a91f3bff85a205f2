"""A difference of plans as text and as JSON."""

from __future__ import annotations

from typing import Any

from attrs import asdict

from rlc.explanation.diff.compare import PlanDiff
from rlc.explanation.layout import WIDTH, Lines, dollars, section
from rlc.lang.render import Paint
from rlc.plan.differences import Side, change_lines
from rlc.plan.records import SCHEMA_VERSION
from rlc.pricing.cost import KINDS, Money
from rlc.pricing.shapes import LEVELS

NO_CHANGE = "no change: both do the same"


def diff_text(diff: PlanDiff, before: str, after: str, color: bool = False) -> str:
    """For a person; ``before`` and ``after`` name the two."""
    paint = Paint(color)
    head = paint.title(f"{before} → {after}")
    if not diff:
        return f"{head}\n{NO_CHANGE}\n"
    sections = [
        *section("values", change_lines(diff.values, paint.dim), paint),
        *section("formulas", _formulas(diff, paint), paint),
        *section("graph", _graph(diff), paint),
        *section("cost in USD", _cost(diff), paint),
    ]
    return "\n".join(line.rstrip() for line in [head, *sections]) + "\n"


def diff_dict(diff: PlanDiff, before: str, after: str) -> dict[str, Any]:
    """For a program."""
    return {
        "schema_version": SCHEMA_VERSION,
        "before": before,
        "after": after,
        "same": diff.same,
        "values": [
            {"path": change.path, "before": _plain(change.before), "after": _plain(change.after)}
            for change in diff.values
        ],
        "formulas": [asdict(change) for change in diff.formulas],
        "graph": asdict(diff.graph),
        "cost": {
            "currency": "USD",
            **{
                level: {
                    "before": old.total,
                    "after": new.total,
                    "at_least": {"before": old.usd, "after": new.usd},
                }
                for level, (old, new) in diff.cost.items()
            },
        },
    }


def _plain(side: Side) -> dict[str, Any] | None:
    return {"value": side.value, "origin": side.origin} if side.exists else None


def _formulas(diff: PlanDiff, paint: Paint) -> Lines:
    for change in diff.formulas:
        yield paint.dim(f"{change.part} of {change.stage}")
        yield from (f"- {line}" for line in change.before)
        yield from (f"+ {line}" for line in change.after)


def _graph(diff: PlanDiff) -> Lines:
    for sign, lines in (("-", diff.graph.removed), ("+", diff.graph.added)):
        for line in lines:
            shown = f"{sign} {line}"
            yield shown if len(shown) < WIDTH - 4 else f"{shown[: WIDTH - 5]}…"


def _cost(diff: PlanDiff) -> Lines:
    """Yield the expected cost by kind, then the totals by level."""
    if not diff.bill and all(old == new for old, new in diff.cost.values()):
        return
    yield f"{'':16}{'before':>14}{'after':>14}{'change':>14}"
    for kind in [kind for kind in KINDS if kind in diff.bill]:
        yield _cost_line(kind, *diff.bill[kind])
    for level in LEVELS:
        yield _cost_line(f"total, {level}", *diff.cost[level])


def _cost_line(label: str, before: Money, after: Money) -> str:
    change = "unknown"
    if before.complete and after.complete:
        difference = after.usd - before.usd
        change = f"{'-' if difference < 0 else '+'}${abs(difference):,.2f}"
    return f"{label:16}{dollars(before):>14}{dollars(after):>14}{change:>14}"
