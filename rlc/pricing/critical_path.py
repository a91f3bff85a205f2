"""The seconds of a step of a stage, from the seconds of its nodes: declared, or measured by a run.

The executor (:mod:`rlc.runtime.graph`) waits for constraints between events: an event of step n
starts no earlier than another of step n − delay ends. In the steady state a step takes as long as
the slowest cycle of constraints, its seconds divided by its delay (the maximum cycle ratio of a
timed event graph; Baccelli et al., Synchronization and Linearity, 1992). Synchronous, streamed and
asynchronous stages differ in their edges only.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from graphlib import TopologicalSorter
from typing import Any, NamedTuple

from rlc.errors import Error
from rlc.plan import IN_ORDER, SCORERS, SECONDS, Graph, Plan
from rlc.records import frozen

Event = tuple[str, int]  # the kind of a node, and the part
Seconds = Mapping[str, Sequence[float]]  # by kind, of each part; those not named take none

# A step begins, may change the weights, is done.
BEGIN, TURN, DONE = ("begin", 0), ("turn", 0), ("done", 0)
_NEVER = float("-inf")


class Constraint(NamedTuple):
    """``target`` of step n starts when ``source`` of step n − ``delay`` has ended."""

    source: Event
    target: Event
    delay: int = 0


@frozen
class CriticalPath:
    """The critical path of a step in the steady state: its mean ``seconds``, the kinds of the
    ``critical`` nodes in their order, and the ``slack`` by kind: the seconds by which (one part of)
    a node could be slower at no cost."""

    seconds: float
    critical: tuple[str, ...]
    slack: dict[str, float]


def critical_path(graph: Graph, stage: str, seconds: Seconds) -> CriticalPath:
    """Return the critical path of a stage whose nodes take so long. Raise ValueError if the stage
    has no node, or a node not as many parts as ``seconds``."""
    system = _System.of(graph, stage, seconds)
    cycles = list(system.cycles())
    worst = max(cycles, key=lambda cycle: system.seconds_of(cycle) / _delay(cycle))
    period = system.seconds_of(worst) / _delay(worst)
    slack: dict[str, float] = {}
    for kind, part in system.nodes:
        room = min(system.room(cycle, (kind, part), period) for cycle in cycles)
        slack[kind] = min(slack.get(kind, room), room)
    on_path = (
        event[0]
        for start, end in _ways(worst)
        for event in system.nodes
        if system.seconds[event] and system.detour(start, event, end) < 1e-9
    )
    return CriticalPath(period, tuple(dict.fromkeys(on_path)), slack)


def completion_times(graph: Graph, stage: str, by_step: Sequence[Seconds]) -> list[float]:
    """Return when each of the first steps is done, in seconds since the start of the stage, with
    the seconds of its nodes ``by_step``. Raise ValueError as :func:`critical_path` does."""
    if not by_step:
        return []
    steps = range(1, len(by_step) + 1)
    system = _System.of(graph, stage, by_step[0])
    parts = parts_of(graph, stage)
    took = {
        (event, step): _seconds(seconds, event, parts.get(event[0], 1))
        for step, seconds in zip(steps, by_step, strict=True)
        for event in system.order
    }
    incoming: dict[Event, list[Constraint]] = {event: [] for event in system.order}
    for constraint in system.given:
        incoming[constraint.target].append(constraint)
    ends: defaultdict[tuple[Event, int], float] = defaultdict(float)
    # The turn of a step waits for what begins later steps, so events are settled step by step
    # until nothing moves: each pass is exact for one more of those waits.
    while True:
        moved = False
        for step in steps:
            for event in system.order:
                waits = [ends[c.source, step - c.delay] for c in incoming[event]]
                ended = max(waits, default=0.0) + took[event, step]
                moved |= ended > ends[event, step]
                ends[event, step] = ended
        if not moved:
            return [ends[DONE, step] for step in steps]


def parts_of(graph: Graph, stage: str) -> dict[str, int]:
    """Return the number of parts of each node of a stage, by its kind."""
    own = {node.id: node.kind for node in graph.nodes_of[stage]}
    parts = dict.fromkeys(own.values(), 1)
    for edge in graph.edges_of(stage):
        for end in (own[edge.source], own[edge.target]):
            parts[end] = max(parts[end], edge.parts)
    return parts


def constraints(graph: Graph, stage: str) -> list[Constraint]:
    """Return what :func:`rlc.runtime.graph.run_steps` waits for, as constraints."""
    kinds = {node.id: node.kind for node in graph.nodes}
    parts, edges = parts_of(graph, stage), graph.edges_of(stage)
    slack = max((edge.slack for edge in edges), default=0)
    found = [Constraint(DONE, BEGIN, 1 + slack), Constraint(DONE, TURN, 1), Constraint(TURN, DONE)]
    in_parts = {kinds[edge.target] for edge in edges if edge.parts > 1}
    for kind, count in parts.items():
        for part in range(count):
            found += [Constraint(BEGIN, (kind, part)), Constraint((kind, part), DONE)]
            if kind in IN_ORDER:
                found.append(Constraint(TURN, (kind, part)))
            if part and kind in in_parts:
                found.append(Constraint((kind, part - 1), (kind, part)))
    for edge in edges:
        source, target = kinds[edge.source], kinds[edge.target]
        for part in range(parts[target]):
            if edge.delay and target not in IN_ORDER:
                # What reads the weights is done before a step changes them, and before the next
                # step begins.
                found.append(Constraint((target, part), TURN, -slack))
                found.append(Constraint((target, part), BEGIN, 1))
            if not edge.delay:  # part by part if both have as many, else all to each part
                whole = range(parts[source]) if parts[source] != parts[target] else (part,)
                found += [Constraint((source, given), (target, part)) for given in whole]
    return found


Cycle = tuple[Constraint, ...]  # its delayed constraints; between them lies the longest way


@frozen
class _System:
    """The constraints of a stage. Between two delayed ones events are of one step, and acyclic."""

    seconds: dict[Event, float]
    order: tuple[Event, ...]  # those of one step, sources first
    given: tuple[Constraint, ...]
    # The seconds of the longest way from one event to another, both included.
    longest: dict[Event, dict[Event, float]]

    @classmethod
    def of(cls, graph: Graph, stage: str, seconds: Seconds) -> _System:
        parts, given = parts_of(graph, stage), tuple(constraints(graph, stage))
        if not parts:
            raise ValueError(f"the graph has no stage {stage}")
        events = [BEGIN, TURN, DONE, *((kind, p) for kind, n in parts.items() for p in range(n))]
        took = {event: _seconds(seconds, event, parts.get(event[0], 1)) for event in events}
        sorter: TopologicalSorter[Event] = TopologicalSorter({event: set() for event in events})
        for constraint in given:
            if not constraint.delay:
                sorter.add(constraint.target, constraint.source)
        order = tuple(sorter.static_order())
        ways = [(c.source, c.target) for c in given if not c.delay]
        longest = {event: _longest(event, order, ways, took) for event in order}
        return cls(took, order, given, longest)

    @property
    def nodes(self) -> list[Event]:
        return [event for event in self.order if event not in (BEGIN, TURN, DONE)]

    def cycles(self) -> Iterator[Cycle]:
        """Yield the cycles that are the longest of those with their delayed constraints."""
        delayed = [constraint for constraint in self.given if constraint.delay]
        for index, first in enumerate(delayed):
            yield from self._closed([first], delayed[index + 1 :])

    def _closed(self, path: list[Constraint], others: Sequence[Constraint]) -> Iterator[Cycle]:
        reached = self.longest[path[-1].target]
        if reached[path[0].source] > _NEVER:
            yield tuple(path)
        for follower in others:
            if follower not in path and reached[follower.source] > _NEVER:
                yield from self._closed([*path, follower], others)

    def seconds_of(self, cycle: Cycle) -> float:
        return sum(self.longest[start][end] for start, end in _ways(cycle))

    def detour(self, start: Event, event: Event, end: Event) -> float:
        """Return by how much the path through an event is shorter than the longest one."""
        through = self.longest[start][event] + self.longest[event][end] - self.seconds[event]
        return self.longest[start][end] - through

    def room(self, cycle: Cycle, event: Event, period: float) -> float:
        """Return how much longer ``event`` could take before the cycle through it is critical."""
        detour = min(self.detour(start, event, end) for start, end in _ways(cycle))
        return max(period * _delay(cycle) - self.seconds_of(cycle) + detour, 0.0)


def _seconds(seconds: Seconds, event: Event, parts: int) -> float:
    given = seconds.get(event[0], (0.0,) * parts)
    if len(given) != parts:
        raise ValueError(f"{event[0]} runs in {parts} parts, and {len(given)} are given")
    return given[event[1]]


def _ways(cycle: Cycle) -> Iterator[tuple[Event, Event]]:
    """Yield, for each delayed constraint, its target and the source of the next one."""
    for constraint, follower in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        yield constraint.target, follower.source


def _delay(cycle: Cycle) -> int:
    return sum(constraint.delay for constraint in cycle)


def _longest(
    start: Event,
    order: Sequence[Event],
    ways: Sequence[tuple[Event, Event]],
    took: Mapping[Event, float],
) -> dict[Event, float]:
    """Return the seconds of the longest way from ``start`` to each event."""
    longest = dict.fromkeys(order, _NEVER)
    longest[start] = took[start]
    onward: dict[Event, list[Event]] = {event: [] for event in order}
    for source, target in ways:
        onward[source].append(target)
    for event in order:
        for target in onward[event]:
            longest[target] = max(longest[target], longest[event] + took[target])
    return longest


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
    last of ``10s..30s``; others share the time. Raise LatencyError if a text cannot be read."""
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
        ends = [_TIME.fullmatch(end) for end in value.strip().split("..")]
        seconds = [float(end[1]) * _UNITS[end[2]] for end in ends if end]
        if len(seconds) != len(ends) or len(ends) > 2 or seconds != sorted(seconds):
            raise LatencyError(f"`{value.strip()}` is no time: give {_FORM}")
        given[kind] = seconds[0], seconds[-1]
    return {
        stage: {kind: _spread(kind, *given[kind], n) for kind, n in parts.items() if kind in given}
        for stage, parts in stages.items()
    }


def measured_latencies(plan: Plan, records: Iterable[Mapping[str, Any]]) -> Latencies:
    """Return the medians over the steps in a run's ``timeline.jsonl``, which has ``stage``,
    ``step``, ``part``, ``kind``, ``start`` and ``end`` (seconds). Raise LatencyError if it is of
    other stages, or of another overlap."""
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


def _spread(kind: str, first: float, last: float, parts: int) -> list[float]:
    if kind not in _SIDE_BY_SIDE:
        return [last / parts] * parts
    steps = max(parts - 1, 1)
    return [last - (last - first) * (parts - 1 - part) / steps for part in range(parts)]
