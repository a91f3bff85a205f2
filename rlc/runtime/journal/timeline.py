"""When each part of each node of the step graph ran: the records of ``timeline.jsonl``."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from rlc.runtime.graph import NodeContext

TIMELINE_FILE = "timeline.jsonl"


@define(eq=False)
class Timeline:
    """The spans of one stage, kept until their step is journalled."""

    stage: str
    _spans: dict[int, list[dict[str, Any]]] = field(factory=dict, init=False)

    def add(self, kind: str, node: NodeContext, start: float, end: float) -> None:
        """Add that one part of a node ran from ``start`` to ``end`` (seconds since the epoch)."""
        span = {"stage": self.stage, "step": node.step, "part": node.part, "kind": kind}
        span |= {"start": round(start, 6), "end": round(end, 6)}
        self._spans.setdefault(node.step, []).append(span)

    def take(self, step: int) -> list[dict[str, Any]]:
        """Return and forget the records of a step, in the order in which its nodes ended."""
        return self._spans.pop(step, [])
