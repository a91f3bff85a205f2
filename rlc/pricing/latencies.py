"""Durations of the nodes of a job's stages, given by the user or measured by a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rlc.errors import Error
from rlc.plan.graph import SCORERS
from rlc.plan.records import Plan
from rlc.plan.units import SECONDS
from rlc.pricing.critical_path import parts_of

# By stage, by the kind of a node: the seconds of each of its parts.
Latencies = dict[str, dict[str, list[float]]]

ALIASES = {"sampling": "rollouts", "training": "forward_backward"}
# Their parts wait side by side; those of other nodes share the work.
_SIDE_BY_SIDE = ("rollouts", *SCORERS)
_FORM = (
    "NODE=SECONDS, such as sampling=30s or training=500ms; sampling=10s..30s: first to last part"
)
_UNITS = {"ms": 0.001, **SECONDS}
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])")


class LatencyError(Error, ValueError):
    """Latencies that cannot be read; the message says what to write."""

    exit_status = 2


def declared_latencies(plan: Plan, texts: Iterable[str]) -> Latencies:
    """Read ``sampling=30s,training=5s``: seconds for a whole batch, for every stage that has the
    node. Of a node in parts, those that wait side by side end evenly between the first and the
    last of ``10s..30s``; others share the time.

    Raises LatencyError.
    """
    stages = _shapes(plan)
    kinds = {kind for parts in stages.values() for kind in parts}
    given: dict[str, tuple[float, float]] = {}
    for text in (item for given_text in texts for item in given_text.split(",") if item):
        name, equals, value = text.partition("=")
        kind = ALIASES.get(name.strip(), name.strip())
        if not equals or kind not in kinds:
            near = get_close_matches(name.strip(), [*ALIASES, *kinds], 1) if equals else []
            hint = f"did you mean {near[0]}? " if near else ""
            raise LatencyError(f"`{text}` is no latency of this job: {hint}give {_FORM}")
        given[kind] = _range(value.strip())
    return {
        stage: {kind: _spread(kind, *given[kind], n) for kind, n in parts.items() if kind in given}
        for stage, parts in stages.items()
    }


def measured_latencies(plan: Plan, records: Iterable[Mapping[str, Any]]) -> Latencies:
    """The medians over steps of a run's ``timeline.jsonl``, which has ``stage``, ``step``,
    ``part``, ``kind``, ``start`` and ``end`` (seconds).

    Raises LatencyError where it is of other stages, or of other overlap.
    """
    from statistics import median

    spans: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        key = record["stage"], record["kind"], record["part"]
        spans.setdefault(key, []).append(record["end"] - record["start"])
    found: Latencies = {}
    for stage, parts in _shapes(plan).items():
        own = {key: values for key, values in spans.items() if key[0] == stage}
        if not own:
            continue
        measured = {kind: sum(key[1] == kind for key in own) for kind in parts}
        if wrong := [kind for kind, n in measured.items() if n not in (0, parts[kind])]:
            raise LatencyError(
                f"the run took {wrong[0]} of {stage} in {measured[wrong[0]]} parts, and this plan "
                f"takes it in {parts[wrong[0]]}: give a run with the same overlap"
            )
        found[stage] = {
            kind: [median(own[stage, kind, part]) for part in range(n)]
            for kind, n in measured.items()
            if n
        }
    if not found:
        raise LatencyError("the run has measured none of this plan's stages")
    return found


def _shapes(plan: Plan) -> dict[str, dict[str, int]]:
    return {stage.name: parts_of(plan.graph, stage.name) for stage in plan.trainings}


def _range(text: str) -> tuple[float, float]:
    ends = [_TIME.fullmatch(end) for end in text.split("..")]
    seconds = [float(end[1]) * _UNITS[end[2]] for end in ends if end]
    if len(seconds) != len(ends) or len(ends) > 2 or seconds != sorted(seconds):
        raise LatencyError(f"`{text}` is no time: give {_FORM}")
    return seconds[0], seconds[-1]


def _spread(kind: str, first: float, last: float, parts: int) -> list[float]:
    if kind not in _SIDE_BY_SIDE:
        return [last / parts] * parts
    steps = max(parts - 1, 1)
    return [last - (last - first) * (parts - 1 - part) / steps for part in range(parts)]
