"""What differs between two plans, by meaning: values, formulas, graph, cost, and the sweeps of
their recipes; as text and as JSON.

Moving a line, renaming a file or writing out a default changes nothing here, as it leaves the
content hash alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlc.compile import Sweep
from rlc.explanation.job import edge_notes
from rlc.explanation.layout import WIDTH, Lines, dollars, section
from rlc.explanation.stages import stage_formulas
from rlc.explanation.sweeps import sweep_changes
from rlc.lang.render import Paint
from rlc.plan import (
    SCHEMA_VERSION,
    Change,
    ComparedValue,
    Plan,
    change_lines,
    plan_hash,
    value_changes,
)
from rlc.pricing import KINDS, LEVELS, Level, Money, Seen, bill_of, plan_cost, total_cost
from rlc.records import asdict, frozen

NO_CHANGE = "no change: both do the same"


@frozen
class FormulaChange:
    """Formulas of one part of a stage; empty where a plan has none."""

    stage: str
    part: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@frozen
class PlanDiff:
    """The differences of two plans; false if both do the same."""

    same: bool
    values: tuple[Change, ...]
    formulas: tuple[FormulaChange, ...]
    graph: dict[str, tuple[str, ...]]  # nodes and edges that were "removed" and "added"
    cost: dict[Level, tuple[Money, Money]]
    bill: dict[str, tuple[Money, Money]]  # what is expected, by kind, where it differs
    sweeps: tuple[Change, ...] = ()
    files: tuple[str, ...] = ()  # whose contents differ: data, templates, code

    def __bool__(self) -> bool:
        return not self.same


def diff_plans(
    before: Plan,
    after: Plan,
    sweeps: tuple[Sequence[Sweep], Sequence[Sweep]] = ((), ()),
    seen: tuple[Mapping[str, Seen], Mapping[str, Seen]] = ({}, {}),
) -> PlanDiff:
    """Compare two plans, and the ``sweeps`` of the recipes that they are of; ``seen`` is what is
    known of the episodes of each."""
    changed = tuple(sweep_changes(*sweeps))
    costs = plan_cost(before, seen[0]), plan_cost(after, seen[1])
    bills = bill_of(costs[0], "expected"), bill_of(costs[1], "expected")
    old, new = _graph_lines(before), _graph_lines(after)
    return PlanDiff(
        same=plan_hash(before) == plan_hash(after) and not changed,
        values=tuple(value_changes(before, after)),
        formulas=tuple(_formula_changes(before, after)),
        graph={
            "removed": tuple(line for line in old if line not in new),
            "added": tuple(line for line in new if line not in old),
        },
        cost={
            level: (total_cost(costs[0], level), total_cost(costs[1], level)) for level in LEVELS
        },
        bill={
            kind: (bills[0][kind], bills[1][kind])
            for kind in KINDS
            if bills[0][kind] != bills[1][kind]
        },
        sweeps=changed,
        files=_changed_files(before, after),
    )


def _changed_files(before: Plan, after: Plan) -> tuple[str, ...]:
    """Return the files that both plans name, with other contents."""
    old = {file.path: file for file in before.data}
    return tuple(file.path for file in after.data if old.get(file.path, file) != file)


def _formula_changes(before: Plan, after: Plan) -> Iterator[FormulaChange]:
    old = {stage.name: stage_formulas(stage) for stage in before.stages}
    new = {stage.name: stage_formulas(stage) for stage in after.stages}
    for stage in [name for name in old if name in new]:
        for part in dict.fromkeys([*old[stage], *new[stage]]):
            was, becomes = (tuple(side[stage].get(part, ())) for side in (old, new))
            if was != becomes:
                yield FormulaChange(stage, part, was, becomes)


def _graph_lines(plan: Plan) -> dict[str, None]:
    """Return nodes and edges as an ordered set, each as a line: ``a.optim_step → a.snapshot:
    weights (step − 1)``."""
    nodes = dict.fromkeys(f"{node.id} ({node.label})" for node in plan.graph.nodes)
    return nodes | dict.fromkeys(
        f"{edge.source} → {edge.target}: {edge.carries}{edge_notes(edge, plan)}"
        for edge in plan.graph.edges
    )


def diff_text(diff: PlanDiff, before: str, after: str, color: bool = False) -> str:
    """Return the differences as text; ``before`` and ``after`` name the two plans."""
    paint = Paint(color)
    head = paint.title(f"{before} → {after}")
    if not diff:
        return f"{head}\n{NO_CHANGE}\n"
    sections = [
        *section("values", change_lines(diff.values, paint.dim), paint),
        *section("files with other contents", diff.files, paint),
        *section("formulas", _formulas(diff, paint), paint),
        *section("graph", _graph(diff), paint),
        *section("cost in USD", _cost(diff), paint),
        *section("sweeps", change_lines(diff.sweeps), paint),
    ]
    return "\n".join(line.rstrip() for line in [head, *sections]) + "\n"


def diff_dict(diff: PlanDiff, before: str, after: str) -> dict[str, Any]:
    """Return the differences as data for JSON; ``before`` and ``after`` name the two plans."""
    return {
        "schema_version": SCHEMA_VERSION,
        "before": before,
        "after": after,
        "same": diff.same,
        "values": list(map(_change, diff.values)),
        "files": list(diff.files),
        "formulas": [asdict(change) for change in diff.formulas],
        "graph": diff.graph,
        "cost": {
            "currency": "USD",
            **{
                level: {
                    "before": old.total,
                    "after": new.total,
                    "at_least": {"before": old.at_least, "after": new.at_least},
                }
                for level, (old, new) in diff.cost.items()
            },
        },
        "sweeps": list(map(_change, diff.sweeps)),
    }


def _change(change: Change) -> dict[str, Any]:
    def plain(side: ComparedValue) -> dict[str, Any] | None:
        return {"value": side.value, "origin": side.origin} if side.exists else None

    return {"path": change.path, "before": plain(change.before), "after": plain(change.after)}


def _formulas(diff: PlanDiff, paint: Paint) -> Lines:
    for change in diff.formulas:
        yield paint.dim(f"{change.part} of {change.stage}")
        yield from (f"- {line}" for line in change.before)
        yield from (f"+ {line}" for line in change.after)


def _graph(diff: PlanDiff) -> Lines:
    lines = [f"- {line}" for line in diff.graph["removed"]]
    for line in lines + [f"+ {line}" for line in diff.graph["added"]]:
        yield line if len(line) < WIDTH - 4 else f"{line[: WIDTH - 5]}…"


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
    if before.total is not None and after.total is not None:
        difference = after.total - before.total
        change = f"{'-' if difference < 0 else '+'}{dollars(Money(abs(difference)))}"
    return f"{label:16}{dollars(before):>14}{dollars(after):>14}{change:>14}"
