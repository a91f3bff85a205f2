"""The job graph: its records (``nodes``), and how it follows from the stages (``build``)."""

from rlc.plan.graph.build import (
    IN_ORDER,
    SCORERS,
    Barrier,
    barriers,
    build_graph,
    evaluations_of,
    in_parts,
    step_edges,
    takes_what_is_ready,
)

__all__ = [
    "IN_ORDER",
    "SCORERS",
    "Barrier",
    "barriers",
    "build_graph",
    "evaluations_of",
    "in_parts",
    "step_edges",
    "takes_what_is_ready",
]
