"""The step graph is the schedule: order, delays, failures."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from rlc.plan.graph import Graph, GraphEdge, GraphNode
from rlc.runtime.graph import NodeContext, StepFunction, StepOutcome, run_steps


def graph(nodes: str, *edges: GraphEdge) -> Graph:
    return Graph(tuple(GraphNode(f"s.{kind}", kind, "s", "") for kind in nodes), edges)


def edge(source: str, target: str, delay: int = 0, slack: int = 0, parts: int = 1) -> GraphEdge:
    return GraphEdge(f"s.{source}", f"s.{target}", "", delay, slack, parts)


def run(
    shape: Graph,
    functions: Mapping[str, StepFunction],
    steps: int = 1,
    stop_after: int | None = None,
    first: int = 1,
    known: Mapping[int, int] | None = None,
) -> list[StepOutcome]:
    """The outcomes of the steps, in order."""
    outcomes = []

    async def commit(step: int, outcome: StepOutcome) -> bool:
        outcomes.append(outcome)
        return step != stop_after

    asyncio.run(
        run_steps(
            shape,
            "s",
            functions,
            range(first, steps + 1),
            known=known or {},
            commit=commit,
        )
    )
    return outcomes


def recorder(order: list[str], kind: str) -> StepFunction:
    async def work(at: NodeContext, inputs: Mapping[str, Any]) -> str:
        order.append(kind)
        return kind + "".join(inputs[name] for name in sorted(inputs))

    return work


def test_a_node_runs_after_all_it_waits_for_and_gets_what_they_made() -> None:
    order: list[str] = []
    shape = graph("dcba", edge("a", "b"), edge("a", "c"), edge("b", "d"), edge("c", "d"))
    (outcome,) = run(shape, {kind: recorder(order, kind) for kind in "abcd"})
    assert order[0] == "a"
    assert order[-1] == "d"
    assert outcome.outputs["d"] == "dbaca"


def test_a_delayed_edge_hands_on_the_step_before() -> None:
    shape = graph("ab", edge("a", "b"), edge("b", "a", delay=1))
    first, second = run(shape, {kind: recorder([], kind) for kind in "ab"}, steps=2)
    assert (first.outputs["a"], second.outputs["a"]) == ("a", "aba")


def test_other_stages_do_not_run() -> None:
    shape = Graph((*graph("a").nodes, GraphNode("t.b", "b", "t", "")), ())
    (outcome,) = run(shape, {"a": recorder([], "a")})
    assert set(outcome.outputs) == {"a"}


def test_the_first_cause_is_raised_and_siblings_are_cancelled() -> None:
    cancelled = []

    async def fail(at: NodeContext, inputs: Mapping[str, Any]) -> None:
        await asyncio.sleep(0)
        raise ValueError("the cause")

    async def wait(at: NodeContext, inputs: Mapping[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(ValueError, match="the cause"):
        run(graph("ab"), {"a": fail, "b": wait})
    assert cancelled == [True]


def staged(log: list[str]) -> tuple[dict[str, StepFunction], dict[str, int]]:
    """A stage that samples from weights and updates them; ``log`` says what happened when."""
    weights = {"version": 0}

    async def snapshot(at: NodeContext, inputs: Mapping[str, Any]) -> int:
        log.append(f"snapshot {at.step}")
        log.append(f"source of {at.step}: {at.source}")
        return weights["version"]

    async def rollouts(at: NodeContext, inputs: Mapping[str, Any]) -> int:
        log.append(f"play {at.step}")
        await asyncio.sleep(0)
        version: int = inputs["snapshot"]
        return version

    async def forward_backward(at: NodeContext, inputs: Mapping[str, Any]) -> int:
        log.append(f"gradient {at.step}")
        staleness: int = weights["version"] - inputs["rollouts"]
        return staleness

    async def optim_step(at: NodeContext, inputs: Mapping[str, Any]) -> None:
        weights["version"] += 1

    functions: dict[str, StepFunction] = {
        "snapshot": snapshot,
        "rollouts": rollouts,
        "forward_backward": forward_backward,
        "optim_step": optim_step,
    }
    return functions, weights


def overlapping(slack: int) -> Graph:
    order = ("snapshot", "rollouts", "forward_backward", "optim_step")
    nodes = tuple(GraphNode(f"s.{kind}", kind, "s", "") for kind in order)
    edges = [edge(a, b) for a, b in pairwise(order)]
    return Graph(nodes, (*edges, edge("optim_step", "snapshot", 1, slack)))


def staleness(slack: int) -> list[int]:
    functions, _ = staged([])
    outcomes = run(overlapping(slack), functions, 6)
    return [outcome.outputs["forward_backward"] for outcome in outcomes]


def test_without_slack_every_rollout_is_of_the_newest_weights() -> None:
    assert staleness(0) == [0] * 6


@pytest.mark.parametrize("slack", [1, 2, 3])
def test_slack_bounds_how_old_the_weights_are_and_is_always_used(slack: int) -> None:
    assert staleness(slack) == [min(step, slack) for step in range(6)]


def sources(log: list[str]) -> dict[int, int]:
    """The step whose weights each step sampled from."""
    words = [line.split() for line in log if line.startswith("source")]
    return {int(step.rstrip(":")): int(source) for _, _, step, source in words}


def test_a_resumed_stage_samples_from_the_same_weights() -> None:
    whole: list[str] = []
    run(overlapping(2), staged(whole)[0], 6)
    rest: list[str] = []
    run(overlapping(2), staged(rest)[0], 6, first=4)
    assert sources(rest) == {4: 1, 5: 2, 6: 3}
    assert sources(whole) | sources(rest) == sources(whole)


def test_a_step_that_began_before_keeps_its_source() -> None:
    """As where a guard made later steps synchronous."""
    log: list[str] = []
    run(overlapping(0), staged(log)[0], 6, first=4, known={4: 2, 5: 3})
    assert sources(log) == {4: 2, 5: 3, 6: 5}


def test_no_step_changes_the_weights_before_the_last_is_safe() -> None:
    log: list[str] = []

    async def settle() -> None:
        log.append("settled")

    async def commit(step: int, _: StepOutcome) -> bool:
        log.append(f"done {step}")
        return True

    functions, _ = staged(log)
    asyncio.run(
        run_steps(overlapping(0), "s", functions, range(1, 3), settle=settle, commit=commit)
    )
    order = [line for line in log if line.startswith(("settled", "gradient", "done", "play"))]
    once = ["settled", "gradient", "done"]
    assert [line for line in order if not line.startswith("play")] == [
        word if word == "settled" else f"{word} {step}" for step in (1, 2) for word in once
    ]


def test_rollouts_of_the_next_step_are_played_while_this_one_trains() -> None:
    log: list[str] = []
    run(overlapping(1), staged(log)[0], 3)
    assert log.index("play 2") < log.index("gradient 1")
    assert log.index("snapshot 3") < log.index("gradient 2")


def test_what_later_steps_have_begun_is_dropped_where_a_stage_ends() -> None:
    functions, weights = staged([])
    assert len(run(overlapping(2), functions, 6, stop_after=2)) == 2
    assert weights["version"] == 2


def test_parts_are_handed_on_as_they_come_and_trained_in_order() -> None:
    log: list[str] = []

    async def play(at: NodeContext, inputs: Mapping[str, Any]) -> int:
        for _ in range(3 * (at.parts - at.part)):  # the last part is there first
            await asyncio.sleep(0)
        log.append(f"played {at.part}")
        return at.part

    async def forward_backward(at: NodeContext, inputs: Mapping[str, Any]) -> int:
        log.append(f"gradient {inputs['play']}")
        part: int = inputs["play"]
        return part

    async def optim_step(at: NodeContext, inputs: Mapping[str, Any]) -> list[int]:
        gradients: list[int] = inputs["forward_backward"]
        return gradients

    kinds = ("play", "forward_backward", "optim_step")
    nodes = tuple(GraphNode(f"s.{kind}", kind, "s", "") for kind in kinds)
    shape = Graph(
        nodes, (edge("play", "forward_backward", parts=3), edge("forward_backward", "optim_step"))
    )
    functions: dict[str, StepFunction] = {
        "play": play,
        "forward_backward": forward_backward,
        "optim_step": optim_step,
    }
    (outcome,) = run(shape, functions)
    assert outcome.outputs["optim_step"] == [0, 1, 2]
    assert [line for line in log if "played" in line] == ["played 2", "played 1", "played 0"]
    assert [line for line in log if "gradient" in line] == [f"gradient {i}" for i in range(3)]
