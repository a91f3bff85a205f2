"""When each part of each node of the step graph ran: what ``timeline.jsonl`` holds."""

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

    def add(self, kind: str, at: NodeContext, start: float, end: float) -> None:
        """One part of a node ran from ``start`` to ``end`` (seconds since the epoch)."""
        span = {"stage": self.stage, "step": at.step, "part": at.part, "kind": kind}
        span |= {"start": round(start, 6), "end": round(end, 6)}
        self._spans.setdefault(at.step, []).append(span)

    def take(self, step: int) -> list[dict[str, Any]]:
        """The records of a step that is done, in the order in which its nodes ended."""
        return self._spans.pop(step, [])
