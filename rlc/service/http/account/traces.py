"""What a session's models and samplers did when, for https://ui.perfetto.dev.

The format is Chrome's trace events: complete events ("X", microseconds) on numbered tracks, which
Perfetto reads as it does its own. Requests of one sampler overlap, so each goes to the first
track that is free.
"""

from __future__ import annotations

import heapq
import json
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field, frozen

_KEPT = 200_000  # spans of all sessions; the oldest make room


@frozen
class Span:
    """From the acceptance of a request until it was carried out."""

    owner: str  # a model or a sampler
    name: str
    started: float  # seconds since the epoch
    ended: float
    failed: bool


@define(eq=False)
class Traces:
    """The spans of all sessions, in the order in which they ended."""

    _spans: deque[Span] = field(factory=lambda: deque(maxlen=_KEPT), init=False)

    def add(self, span: Span) -> None:
        self._spans.append(span)

    def export(self, session_id: str) -> bytes:
        """Return the spans of a session as the JSON of Chrome's trace events."""
        mine = [span for span in self._spans if span.owner.split(":")[0] == session_id]
        events: list[dict[str, Any]] = []
        tracks: dict[str, _Tracks] = {}
        for span in sorted(mine, key=lambda span: span.started):
            of_owner = tracks.setdefault(span.owner, _Tracks())
            number, is_new = of_owner.take(span, lambda: 1 + sum(t.used for t in tracks.values()))
            if is_new:
                named = {"name": span.owner.partition(":")[2]}
                events.append(_event("thread_name", "M", number, args=named))
            times = {"ts": span.started * 1e6, "dur": (span.ended - span.started) * 1e6}
            args = {"failed": span.failed}
            events.append(_event(span.name, "X", number, cat="request", args=args, **times))
        return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}).encode()

    def forget(self) -> None:
        """Forget everything, as a restart does."""
        self._spans.clear()


@define(eq=False)
class _Tracks:
    """The tracks of one owner: those in use by when they become free, and those that are."""

    used: int = 0
    _busy: list[tuple[float, int]] = field(factory=list)
    _free: list[int] = field(factory=list)

    def take(self, span: Span, next_number: Callable[[], int]) -> tuple[int, bool]:
        """Return the track of a span, and whether it is a new one."""
        while self._busy and self._busy[0][0] <= span.started:
            heapq.heappush(self._free, heapq.heappop(self._busy)[1])
        is_new = not self._free
        number = next_number() if is_new else heapq.heappop(self._free)
        self.used += is_new
        heapq.heappush(self._busy, (span.ended, number))
        return number, is_new


def _event(name: str, phase: str, track: int, **more: Any) -> dict[str, Any]:
    return {"name": name, "ph": phase, "pid": 1, "tid": track, **more}
