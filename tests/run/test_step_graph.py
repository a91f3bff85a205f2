"""The step graph is the schedule: order, delays, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from rlc.plan.tree import Graph, GraphEdge, GraphNode
from rlc.run.graph import StepFunction, StepOutcome, run_step


def graph(nodes: str, *edges: GraphEdge) -> Graph:
    return Graph(tuple(GraphNode(f"s.{kind}", kind, "s", "") for kind in nodes), edges)


def edge(source: str, target: str, delay: int = 0) -> GraphEdge:
    return GraphEdge(f"s.{source}", f"s.{target}", "", delay)


def run(
    shape: Graph, functions: Mapping[str, StepFunction], before: StepOutcome | None = None
) -> StepOutcome:
    return asyncio.run(run_step(shape, "s", functions, 1, before))


def recorder(order: list[str], kind: str) -> StepFunction:
    async def work(step: int, inputs: Mapping[str, Any]) -> str:
        order.append(kind)
        return kind + "".join(inputs[name] for name in sorted(inputs))

    return work


def test_a_node_runs_after_all_it_waits_for_and_gets_what_they_made() -> None:
    order: list[str] = []
    shape = graph("dcba", edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d"))
    outcome = run(shape, {kind: recorder(order, kind) for kind in "abcd"})
    assert order[0] == "a"
    assert order[-1] == "d"
    assert outcome.outputs["d"] == "dbaca"


def test_a_delayed_edge_hands_on_the_step_before() -> None:
    shape = graph("ab", edge("a", "b"), edge("b", "a", delay=1))
    functions = {kind: recorder([], kind) for kind in "ab"}
    first = run(shape, functions)
    second = run(shape, functions, first)
    assert (first.outputs["a"], second.outputs["a"]) == ("a", "aba")


def test_other_stages_do_not_run() -> None:
    shape = Graph((*graph("a").nodes, GraphNode("t.b", "b", "t", "")), ())
    assert set(run(shape, {"a": recorder([], "a")}).outputs) == {"a"}


def test_the_first_cause_is_raised_and_siblings_are_cancelled() -> None:
    cancelled = []

    async def fail(step: int, inputs: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        raise ValueError("the cause")

    async def wait(step: int, inputs: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(ValueError, match="the cause"):
        run(graph("ab"), {"a": fail, "b": wait})
    assert cancelled == [True]
