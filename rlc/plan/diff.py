"""What differs between two plans, by meaning: values, formulas, graph, cost.

Moving a line, renaming a file or writing out a default changes nothing here, as it leaves the
content hash alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlc.check.settle import leaves
from rlc.plan.codec import plan_hash
from rlc.plan.cost import KINDS, Money, bill_of, kind_of, plan_cost, total_cost
from rlc.plan.explain.graph import edge_notes
from rlc.plan.explain.maths import formulas_of
from rlc.plan.shapes import LEVELS, Level
from rlc.plan.tree import GraphEdge, Plan
from rlc.record import frozen

Values = Mapping[str, tuple[Any, str]]  # path: value and origin


@frozen
class Side:
    """A value and where it came from. ``exists`` is false where a plan has no such value."""

    value: Any = None
    origin: str = ""
    exists: bool = True


ABSENT = Side(exists=False)


@frozen
class Change:
    """One value that is not the same. ``path``: ``main.optimizer.learning_rate``."""

    path: str
    before: Side
    after: Side


@frozen
class FormulaChange:
    """Formulas of one part of a stage; empty where a plan has none."""

    stage: str
    part: str
    before: tuple[str, ...]
    after: tuple[str, ...]


@frozen
class GraphChange:
    """Nodes and edges that only one of the plans has."""

    removed: tuple[str, ...]
    added: tuple[str, ...]


@frozen
class PlanDiff:
    """From one plan to another; false where both do the same."""

    same: bool
    values: tuple[Change, ...]
    formulas: tuple[FormulaChange, ...]
    graph: GraphChange
    cost: dict[Level, tuple[Money, Money]]
    bill: dict[str, tuple[Money, Money]]  # what is expected, by kind, where it differs

    def __bool__(self) -> bool:
        return not self.same


def diff_plans(before: Plan, after: Plan) -> PlanDiff:
    """All that differs."""
    costs = plan_cost(before), plan_cost(after)
    bills = bill_of(costs[0], "expected"), bill_of(costs[1], "expected")
    return PlanDiff(
        same=plan_hash(before) == plan_hash(after),
        values=tuple(_value_changes(before, after)),
        formulas=tuple(_formula_changes(before, after)),
        graph=_graph_change(before, after),
        cost={
            level: (total_cost(costs[0], level), total_cost(costs[1], level)) for level in LEVELS
        },
        bill={kind: (bills[0][kind], bills[1][kind]) for kind in KINDS if _differ(bills, kind)},
    )


def _differ(bills: tuple[dict[str, Money], dict[str, Money]], kind: str) -> bool:
    return bills[0][kind] != bills[1][kind]


def _value_changes(before: Plan, after: Plan) -> Iterator[Change]:
    """In the order of the plans; a stage that only one has is one change."""
    old, new = _values(before), _values(after)
    paths = _in_parts([*old, *new])
    changed = [path for path in paths if _value(old, path) != _value(new, path)]
    whole = {path for path in changed if "." not in path and (path in old) != (path in new)}
    for path in changed:
        if path not in whole and path.partition(".")[0] in whole:
            continue  # of a stage that only one has
        if path not in whole and any(other.startswith(f"{path}.") for other in changed):
            continue  # a part took the place of `none`: its own values say so
        yield Change(path, _side(old, path), _side(new, path))


def _in_parts(paths: list[str]) -> list[str]:
    """Each path once, those of one part of a stage together."""
    parts = {part: place for place, part in enumerate(dict.fromkeys(map(_part, paths)))}
    return sorted(dict.fromkeys(paths), key=lambda path: parts[_part(path)])


def _part(path: str) -> tuple[str, ...]:
    return tuple(path.split(".")[:2])


def _value(values: Values, path: str) -> Any:
    """A value with its type, so that 1 and true differ; nothing where there is none."""
    if path not in values:
        return None
    value = values[path][0]
    return type(value), value


def _side(values: Values, path: str) -> Side:
    return Side(*values[path]) if path in values else ABSENT


def _values(plan: Plan) -> dict[str, tuple[Any, str]]:
    found: dict[str, tuple[Any, str]] = {
        "seed": (plan.seed, plan.provenance.get("seed", "")),
        "schema_version": (plan.schema_version, ""),
    }
    for stage in plan.stages:
        prefix = f"stages.{stage.name}"
        found[stage.name] = (kind_of(stage), plan.provenance.get(f"{prefix}.name", ""))
        for path, value in leaves(stage, prefix):
            found[path.removeprefix("stages.")] = (value, plan.provenance.get(path, ""))
    return found


def _formula_changes(before: Plan, after: Plan) -> Iterator[FormulaChange]:
    old = {stage.name: formulas_of(stage) for stage in before.stages}
    new = {stage.name: formulas_of(stage) for stage in after.stages}
    for stage in [name for name in old if name in new]:
        for part in dict.fromkeys([*old[stage], *new[stage]]):
            was, becomes = (tuple(side[stage].get(part, ())) for side in (old, new))
            if was != becomes:
                yield FormulaChange(stage, part, was, becomes)


def _graph_change(before: Plan, after: Plan) -> GraphChange:
    old, new = _graph_lines(before), _graph_lines(after)
    return GraphChange(
        removed=tuple(line for line in old if line not in new),
        added=tuple(line for line in new if line not in old),
    )


def _graph_lines(plan: Plan) -> dict[str, None]:
    """Nodes and edges, each as a line; a set that keeps its order."""
    nodes = [f"{node.id} ({node.label})" for node in plan.graph.nodes]
    return dict.fromkeys([*nodes, *map(edge_line, plan.graph.edges)])


def edge_line(edge: GraphEdge) -> str:
    """``main.optim_step → main.snapshot: weights (step − 1)``."""
    notes = edge_notes(edge)
    return f"{edge.source} → {edge.target}: {edge.carries}" + (f" ({notes})" if notes else "")
