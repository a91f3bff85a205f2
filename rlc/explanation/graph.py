"""The job graph in words: the stages, and what one step of each does."""

from __future__ import annotations

from rlc.explanation.layout import Lines, count, wrapped
from rlc.explanation.sizes import when_evaluated
from rlc.plan.records import EvalPlan, GraphEdge, Plan, StagePlan
from rlc.pricing.cost import StageCost


def job_lines(plan: Plan, costs: tuple[StageCost, ...]) -> Lines:
    """The stages in the order in which they are done, each with where its weights come from."""
    width = max(len(stage.name) for stage in plan.stages)
    for stage, cost in zip(plan.stages, costs, strict=True):
        if isinstance(stage, EvalPlan):
            what = when_evaluated(stage)
        else:
            start = f"goes on from {stage.after}" if stage.after else f"starts {stage.model.name}"
            what = f"{count(stage.steps, 'step')}, {start}"
        yield f"{stage.name:{width}}  {cost.kind:5}  {what}"


def step_lines(plan: Plan, stage: StagePlan) -> Lines:
    """The nodes of one step in their order, each with what it waits for."""
    labels = {node.id: node.label for node in plan.graph.nodes if node.stage == stage.name}
    width = max(len(node) for node in labels) - len(stage.name) - 1
    for node, label in labels.items():
        short = node.removeprefix(f"{stage.name}.")
        yield f"{short:{width}}  {label}"
        waits = [
            f"{edge.carries} from {edge.source.removeprefix(f'{stage.name}.')}{edge_notes(edge)}"
            for edge in plan.graph.edges
            if edge.target == node
        ]
        if waits:
            yield from wrapped(", ".join(waits), bullet=f"{'':{width}}    ← ")


def edge_notes(edge: GraphEdge) -> str:
    """`` (step − 1, up to 2 older)``, `` (in 4 parts)``; empty if there is nothing to note."""
    notes = []
    if edge.delay:
        notes.append(f"step − {edge.delay}")
    if edge.slack:
        notes.append(f"up to {edge.slack} older")
    if edge.parts > 1:
        notes.append(f"in {edge.parts} parts")
    return f" ({', '.join(notes)})" if notes else ""
