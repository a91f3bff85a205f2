"""The records of the job graph, which :mod:`rlc.plan.graph` builds."""

from __future__ import annotations

from attrs import frozen

from rlc.records import Record


@frozen(eq=False, repr=False, slots=False)
class GraphNode(Record):
    """``kind`` names the work; the runtime has one function for each kind of step node."""

    id: str
    kind: str
    stage: str
    label: str


@frozen(eq=False, repr=False, slots=False)
class GraphEdge(Record):
    """``target`` waits for ``source``; ``carries`` names what flows.

    ``delay`` is in steps: an edge with delay 1 carries the result of the step before; with
    ``slack`` that of up to so many steps earlier. ``parts`` says in how many parts it is handed on.
    """

    source: str
    target: str
    carries: str
    delay: int = 0
    slack: int = 0
    parts: int = 1


@frozen(eq=False, repr=False, slots=False)
class Graph(Record):
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
