"""The time of a run as bars: one for each step, and one for each node of the last steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from attrs import frozen

from rlc.report.run_files import TimeSpan
from rlc.report.timing import LANES, StepTime

MOST_BARS = 60
_LAST_STEPS = 12
_MOST_SPANS = 400


@frozen
class Bar:
    """One step, or the mean of some. ``parts`` are lanes and their heights in per cent of the
    highest bar."""

    label: str
    total: float
    parts: tuple[tuple[str, float], ...]
    seconds: tuple[float, ...]  # of each lane


@frozen
class GanttBar:
    """One part of a node: where it begins and how wide it is, in per cent."""

    left: float
    width: float
    step: int
    text: str


@frozen
class Gantt:
    """The last steps: a row for each kind of node, with all its parts. ``seconds`` is the length of
    the whole width."""

    rows: tuple[tuple[str, tuple[GanttBar, ...]], ...]
    seconds: float
    steps: str


def bars(times: Sequence[StepTime]) -> list[Bar]:
    """Return a bar for each step; if there are too many, for the means of neighbours."""
    groups = [list(mine) for _, mine in groupby(times, key=lambda time: time.stage)]
    room = max(1, MOST_BARS // max(1, len(groups)))
    merged = []
    for steps in groups:
        size = -(-len(steps) // room)
        for start in range(0, len(steps), size):
            mine = steps[start : start + size]
            first, last = mine[0].step, mine[-1].step
            label = f"{mine[0].stage} {first:,}" + (f"–{last:,}" if last != first else "")
            seconds = [sum(t.seconds.get(lane, 0.0) for t in mine) / len(mine) for lane in LANES]
            merged.append((label, sum(seconds), seconds))
    highest = max((total for _, total, _ in merged), default=0.0) or 1.0
    return [
        Bar(
            label,
            total,
            tuple((lane, 100 * s / highest) for lane, s in zip(LANES, seconds, strict=True) if s),
            tuple(seconds),
        )
        for label, total, seconds in merged
    ]


def gantt(timeline: Sequence[TimeSpan], evaluations: Sequence[TimeSpan]) -> Gantt | None:
    """Lay out the nodes of the last steps of the stage that ran last; None without a timeline."""
    if not timeline:
        return None
    stage = max(timeline, key=lambda span: span.end).stage
    mine = [span for span in timeline if span.stage == stage]
    per_step = max(1, sum(span.step == mine[-1].step for span in mine))
    first = max(span.step for span in mine) - max(2, min(_LAST_STEPS, _MOST_SPANS // per_step))
    shown = [span for span in mine if span.step > first]
    start, end = min(span.start for span in shown), max(span.end for span in shown)
    shown += [span for span in evaluations if span.start < end and span.end > start]
    end = max(span.end for span in shown)
    width = end - start or 1.0
    kinds = dict.fromkeys(span.kind for span in sorted(shown, key=lambda span: span.start))
    rows = {kind: list[GanttBar]() for kind in kinds}
    for span in shown:
        left = max(0.0, span.start - start)
        part = f", part {span.part + 1}" if span.part else ""
        text = f"{span.stage} step {span.step:,}{part}: {span.kind}, {span.seconds:.3f} s"
        size = round(100 * (span.end - start - left) / width, 3)
        rows[span.kind].append(GanttBar(round(100 * left / width, 3), size, span.step, text))
    steps = sorted({span.step for span in shown if span.stage == stage})
    lines = tuple((kind, tuple(blocks)) for kind, blocks in rows.items())
    return Gantt(lines, width, f"{stage}, steps {steps[0]:,} to {steps[-1]:,}")
