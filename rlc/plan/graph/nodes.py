"""The records of the job graph, which :mod:`rlc.plan.graph` builds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property

from rlc.records import Record, frozen


@frozen
class GraphNode(Record):
    """``kind`` names the work; the runtime has one function for each kind of step node."""

    id: str
    kind: str
    stage: str
    label: str


@frozen
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


@frozen
class Graph(Record):
    """The nodes of all stages, and what they wait for."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]

    @cached_property
    def nodes_of(self) -> Mapping[str, Sequence[GraphNode]]:
        """The nodes by their stages, in order."""
        found = defaultdict[str, list[GraphNode]](list)
        for node in self.nodes:
            found[node.stage].append(node)
        return found

    def edges_of(self, stage: str) -> tuple[GraphEdge, ...]:
        """The edges between nodes of a stage, in order."""
        own = {node.id for node in self.nodes_of[stage]}
        return tuple(edge for edge in self.edges if edge.source in own and edge.target in own)

    @cached_property
    def edges_at(self) -> Mapping[str, Sequence[GraphEdge]]:
        """The edges by the nodes at their two ends, in order."""
        found = defaultdict[str, list[GraphEdge]](list)
        for edge in self.edges:
            for node in {edge.source, edge.target}:
                found[node].append(edge)
        return found
