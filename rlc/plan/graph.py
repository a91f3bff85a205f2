"""The job graph: stages, the artifacts between them, and the step graph of each stage.

Overlap is a property of edges: an edge with ``delay = 1`` hands on what the step before made,
so a synchronous stage is the cycle ``snapshot -> … -> optim_step -(delay 1)-> snapshot``.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlc.plan.tree import Graph, GraphEdge, GraphNode, TrainPlan

_STEP_NODES = (
    ("snapshot", "freeze the weights for sampling"),
    ("rollouts", "play groups of episodes"),
    ("returns", "leave failures out, label rewards by group and environment"),
    ("advantages", "returns, baselines, scales, clips in the order of the scheme"),
    ("datums", "merge turns, shift targets, spread advantages over tokens"),
    ("forward_backward", "gradient of the loss"),
    ("optim_step", "update the adapter"),
    ("checkpoint", "save weights and optimiser when due"),
)

_STEP_EDGES = (
    ("snapshot", "rollouts", "weights", 0),
    ("rollouts", "returns", "rewards", 0),
    ("returns", "datums", "tokens", 0),
    ("returns", "advantages", "rewards", 0),
    ("advantages", "datums", "advantages", 0),
    ("datums", "forward_backward", "datums", 0),
    ("forward_backward", "optim_step", "gradient", 0),
    ("optim_step", "checkpoint", "weights", 0),
    ("optim_step", "snapshot", "weights", 1),
)


def build_graph(stages: Iterable[TrainPlan]) -> Graph:
    """The graph of a whole job, in the order of its stages."""
    nodes: dict[str, GraphNode] = {}
    edges: list[GraphEdge] = []
    for stage in stages:
        model = f"model.{stage.model.name}"
        nodes.setdefault(model, GraphNode(model, "model", "", f"{stage.model.base} + LoRA"))
        for kind, label in _STEP_NODES:
            node = GraphNode(f"{stage.name}.{kind}", kind, stage.name, label)
            nodes[node.id] = node
        edges.append(GraphEdge(model, f"{stage.name}.snapshot", "weights"))
        edges.extend(
            GraphEdge(f"{stage.name}.{source}", f"{stage.name}.{target}", carries, delay)
            for source, target, carries, delay in _STEP_EDGES
        )
    return Graph(tuple(nodes.values()), tuple(edges))
