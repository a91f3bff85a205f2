"""What differs between two plans, by meaning: values, formulas, graph, cost.

Moving a line, renaming a file or writing out a default changes nothing here, as it leaves the
content hash alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rlc.explanation.graph import edge_notes
from rlc.explanation.maths import formulas_of
from rlc.plan.codec import plan_hash
from rlc.plan.differences import Change, value_changes
from rlc.plan.records import Plan
from rlc.pricing.cost import KINDS, Money, bill_of, plan_cost, total_cost
from rlc.pricing.shapes import LEVELS, Level


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
    old, new = _graph_lines(before), _graph_lines(after)
    return PlanDiff(
        same=plan_hash(before) == plan_hash(after),
        values=tuple(value_changes(before, after)),
        formulas=tuple(_formula_changes(before, after)),
        graph=GraphChange(
            removed=tuple(line for line in old if line not in new),
            added=tuple(line for line in new if line not in old),
        ),
        cost={
            level: (total_cost(costs[0], level), total_cost(costs[1], level)) for level in LEVELS
        },
        bill={
            kind: (bills[0][kind], bills[1][kind])
            for kind in KINDS
            if bills[0][kind] != bills[1][kind]
        },
    )


def _formula_changes(before: Plan, after: Plan) -> Iterator[FormulaChange]:
    old = {stage.name: formulas_of(stage) for stage in before.stages}
    new = {stage.name: formulas_of(stage) for stage in after.stages}
    for stage in [name for name in old if name in new]:
        for part in dict.fromkeys([*old[stage], *new[stage]]):
            was, becomes = (tuple(side[stage].get(part, ())) for side in (old, new))
            if was != becomes:
                yield FormulaChange(stage, part, was, becomes)


def _graph_lines(plan: Plan) -> dict[str, None]:
    """Nodes and edges, each as a line such as ``main.optim_step → main.snapshot: weights (step −
    1)``; a set that keeps its order."""
    nodes = [f"{node.id} ({node.label})" for node in plan.graph.nodes]
    edges = [
        f"{edge.source} → {edge.target}: {edge.carries}{edge_notes(edge)}"
        for edge in plan.graph.edges
    ]
    return dict.fromkeys([*nodes, *edges])
