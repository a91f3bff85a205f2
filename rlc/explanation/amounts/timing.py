"""The duration of a step, given those of its nodes."""

from __future__ import annotations

from typing import Any

from rlc.explanation.layout import Lines, wrapped
from rlc.plan.records import Plan
from rlc.plan.stages import StagePlan, is_training
from rlc.plan.units import elapsed
from rlc.pricing.critical_path import completion_times, critical_path
from rlc.pricing.latencies import Latencies

_BEFORE_STEADY = 2  # a pipeline is full after so many times its depth


def timing_lines(plan: Plan, stage: StagePlan, latencies: Latencies) -> Lines:
    """Seconds of a step, what it waits for, and how much slower all else could be."""
    timing = stage_timing(plan, stage, latencies)
    if timing is None:
        return
    yield f"{elapsed(timing['seconds_per_step'])} a step, {elapsed(timing['seconds'])} in all"
    if timing["critical_path"]:
        yield from wrapped(" → ".join(timing["critical_path"]), bullet="a step waits for  ")
    width = max(map(len, timing["nodes"]))
    for kind, node in timing["nodes"].items():
        slack = node["slack"]
        room = "on the critical path" if slack < 1e-9 else f"{elapsed(slack)} of slack"
        times = " / ".join(map(elapsed, dict.fromkeys(node["seconds"])))
        if any(node["seconds"]):
            yield f"{kind:{width}}  {times}, {room}"


def stage_timing(plan: Plan, stage: StagePlan, latencies: Latencies) -> dict[str, Any] | None:
    """Return the timing as data; None for an evaluation, or if nothing is known of the stage."""
    given = latencies.get(stage.name)
    if not is_training(stage) or not given:
        return None
    path = critical_path(plan.graph, stage.name, given)
    depth = _BEFORE_STEADY * (1 + max(edge.slack for edge in plan.graph.edges))
    head = min(depth, stage.steps)
    begun = completion_times(plan.graph, stage.name, [given] * head)[-1]
    return {
        "stage": stage.name,
        "seconds_per_step": path.seconds,
        "seconds": begun + (stage.steps - head) * path.seconds,
        "critical_path": list(path.critical),
        "nodes": {
            kind: {"seconds": given.get(kind, [0.0]), "slack": slack}
            for kind, slack in path.slack.items()
        },
    }
