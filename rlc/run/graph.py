"""Executes the step graph of a stage: the plan's edges are the schedule.

Each node runs as soon as the nodes it waits for have finished. An edge with a delay hands on the
output of an earlier step.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from attrs import frozen

from rlc.plan.tree import Graph, GraphEdge, GraphNode
from rlc.run.tasks import first_cause

StepFunction = Callable[[int, Mapping[str, Any]], Awaitable[Any]]


@frozen
class StepOutcome:
    """What each node made and how long it worked (seconds), by the kind of the node."""

    outputs: dict[str, Any]
    seconds: dict[str, float]


async def run_step(
    graph: Graph,
    stage: str,
    functions: Mapping[str, StepFunction],
    step: int,
    before: StepOutcome | None,
) -> StepOutcome:
    """Run one step of ``stage``. A failing node cancels the others and its error is raised."""
    nodes = [node for node in graph.nodes if node.stage == stage]
    kinds = {node.id: node.kind for node in nodes}
    incoming = {
        node.id: [edge for edge in graph.edges if edge.target == node.id and edge.source in kinds]
        for node in nodes
    }
    tasks: dict[str, asyncio.Task[tuple[Any, float]]] = {}

    async def run_node(node: GraphNode) -> tuple[Any, float]:
        inputs = await _inputs(incoming[node.id], kinds, tasks, before)
        started = time.perf_counter()
        output = await functions[node.kind](step, inputs)
        return output, time.perf_counter() - started

    try:
        async with asyncio.TaskGroup() as group:
            tasks.update({node.id: group.create_task(run_node(node)) for node in nodes})
    except BaseExceptionGroup as failures:
        raise first_cause(failures) from None
    done = {kinds[node_id]: task.result() for node_id, task in tasks.items()}
    return StepOutcome(
        {kind: output for kind, (output, _) in done.items()},
        {kind: seconds for kind, (_, seconds) in done.items()},
    )


async def _inputs(
    edges: list[GraphEdge],
    kinds: Mapping[str, str],
    tasks: Mapping[str, asyncio.Task[tuple[Any, float]]],
    before: StepOutcome | None,
) -> dict[str, Any]:
    """The outputs that a node waits for, by the kind of the node that made them."""
    inputs: dict[str, Any] = {}
    for edge in edges:
        kind = kinds[edge.source]
        if edge.delay == 0:
            inputs[kind] = (await tasks[edge.source])[0]
        elif before is not None:
            inputs[kind] = before.outputs[kind]
    return inputs
