"""The job graph in words and as diagrams (Mermaid, Graphviz), stages as boxes around their steps.

In a diagram a dashed edge carries what an earlier step made, a bold one goes from stage to stage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Literal

from rlc.explanation.layout import Lines, count, wrapped
from rlc.explanation.sizes import when_evaluated
from rlc.plan import GraphEdge, Plan, StagePlan, is_evaluation, is_training
from rlc.pricing import StageCost

Format = Literal["mermaid", "dot"]
FORMATS: tuple[Format, ...] = ("mermaid", "dot")
_quoted = partial(json.dumps, ensure_ascii=False)  # a string of Graphviz


def job_lines(plan: Plan, costs: tuple[StageCost, ...]) -> Lines:
    """The stages in the order in which they are done, each with where its weights come from."""
    width = max(len(stage.name) for stage in plan.stages)
    for stage, cost in zip(plan.stages, costs, strict=True):
        if is_evaluation(stage):
            what = when_evaluated(stage)
        elif is_training(stage):
            start = f"goes on from {stage.after}" if stage.after else f"starts {stage.model.name}"
            what = f"{count(stage.steps, 'step')}, {start}"
        yield f"{stage.name:{width}}  {cost.kind:5}  {what}"


def step_lines(plan: Plan, stage: StagePlan) -> Lines:
    """The nodes of one step in their order, each with what it waits for."""
    labels = {node.id: node.label for node in plan.graph.nodes_of[stage.name]}
    width = max(len(node) for node in labels) - len(stage.name) - 1
    for node, label in labels.items():
        short = node.removeprefix(f"{stage.name}.")
        yield f"{short:{width}}  {label}"
        waits = [
            f"{edge.carries} from {edge.source.removeprefix(f'{stage.name}.')}"
            f"{edge_notes(edge, plan)}"
            for edge in plan.graph.edges_at.get(node, ())
            if edge.target == node
        ]
        if waits:
            yield from wrapped(", ".join(waits), bullet=f"{'':{width}}    ← ")


def edge_notes(edge: GraphEdge, plan: Plan) -> str:
    """`` (step − 1, up to 2 older)``, `` (in 4 parts)``, `` (all 4 parts)`` where they are waited
    for; empty if there is nothing to note."""
    notes = []
    if edge.delay:
        notes.append(f"step − {edge.delay}")
    if edge.slack:
        notes.append(f"up to {edge.slack} older")
    if edge.parts > 1:
        notes.append(f"in {edge.parts} parts")
    else:
        made = max(other.parts for other in plan.graph.edges_at[edge.source])
        notes += [f"all {made} parts"] if made > 1 else []
    return f" ({', '.join(notes)})" if notes else ""


def render_graph(plan: Plan, format: Format) -> str:
    """The graph as the text of a diagram."""
    lines = _mermaid(plan) if format == "mermaid" else _dot(plan)
    return "\n".join(lines) + "\n"


def _mermaid(plan: Plan) -> Iterator[str]:
    yield "flowchart TD"
    for node in plan.graph.nodes_of.get("", ()):
        yield f'  {_id(node.id)}(["{_mermaid_text(node.label)}"])'
    for stage in plan.stages:
        yield f'  subgraph {_id(stage.name)}["{_mermaid_text(_title(stage))}"]'
        for node in plan.graph.nodes_of[stage.name]:
            yield f'    {_id(node.id)}["{node.kind}"]'
        yield "  end"
    for edge in plan.graph.edges:
        arrow = "-.->" if edge.delay else "==>" if _between_stages(plan, edge) else "-->"
        label = f'|"{_mermaid_text(edge.carries + edge_notes(edge, plan))}"|'
        yield f"  {_id(edge.source)} {arrow}{label} {_id(edge.target)}"


def _dot(plan: Plan) -> Iterator[str]:
    yield "digraph job {"
    yield '  node [shape=box, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for node in plan.graph.nodes_of.get("", ()):
        yield f"  {_quoted(node.id)} [label={_quoted(node.label)}, shape=ellipse];"
    for stage in plan.stages:
        yield f"  subgraph {_quoted(f'cluster_{stage.name}')} {{"
        yield f"    label={_quoted(_title(stage))};"
        for node in plan.graph.nodes_of[stage.name]:
            tip = f"tooltip={_quoted(node.label)}"
            yield f"    {_quoted(node.id)} [label={_quoted(node.kind)}, {tip}];"
        yield "  }"
    for edge in plan.graph.edges:
        style = "dashed" if edge.delay else "bold" if _between_stages(plan, edge) else "solid"
        yield (
            f"  {_quoted(edge.source)} -> {_quoted(edge.target)} "
            f"[label={_quoted(edge.carries + edge_notes(edge, plan))}, style={style}];"
        )
    yield "}"


def _between_stages(plan: Plan, edge: GraphEdge) -> bool:
    stages = {node.id: node.stage for node in plan.graph.nodes}
    return stages[edge.source] != stages[edge.target]


def _title(stage: StagePlan) -> str:
    if is_evaluation(stage):
        return f"{stage.kind} {stage.name}: {count(stage.tasks, 'task')}"
    return f"{stage.kind} {stage.name}: {count(stage.steps or 0, 'step')}"


def _id(name: str) -> str:
    """An identifier that Mermaid takes, different for different names; `end` is a word of its."""
    return "n_" + re.sub(r"\W", "_", name.replace("_", "__"))


def _mermaid_text(text: str) -> str:
    return text.replace('"', "#quot;")
