"""The time of a run: what was in progress during each step, as bars and on a line of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import groupby

from attrs import field, frozen

from rlc.report.run_files import TimeSpan
from rlc.runtime import Record

SAMPLING, ENVIRONMENT, TRAINING = "sampling", "environment", "training"
DATA, SAVING, EVALUATION, WAITING = "data", "saving", "evaluation", "waiting"
LANES = (SAMPLING, ENVIRONMENT, TRAINING, DATA, SAVING, EVALUATION, WAITING)

_LANE_OF = {
    **dict.fromkeys(("rollouts", "episodes"), SAMPLING),
    **dict.fromkeys(("reference", "teacher", "forward"), TRAINING),
    **dict.fromkeys(("forward_backward", "optim_step"), TRAINING),
    **dict.fromkeys(("returns", "advantages", "datums", "examples"), DATA),
    **dict.fromkeys(("snapshot", "checkpoint"), SAVING),
    **dict.fromkeys(("heldout", "evaluation"), EVALUATION),
}


def lane_of(kind: str) -> str:
    """Return the lane of a node; the time of rollouts is then shared with their environments."""
    return _LANE_OF.get(kind, DATA)


@frozen
class StepTime:
    """Seconds from the end of the step before (or from the step's own start, if that was later)
    to the end of this one, by what was in progress. They add up to all of that time."""

    stage: str
    step: int
    seconds: Mapping[str, float] = field(factory=dict)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def step_times(
    timeline: Sequence[TimeSpan],
    evaluations: Sequence[TimeSpan],
    shares: Mapping[tuple[str, int], float],
) -> list[StepTime]:
    """Return the time of each step, and of each evaluation, in the order in which they ended.

    Each moment counts for what was in progress then, in equal shares if several things were, of
    this step or of another; a moment in which nothing was is ``waiting``. ``shares`` has the
    part of the time of a step's rollouts that their environments took; the rest was sampling.
    """
    spans = sorted([*timeline, *evaluations], key=lambda span: span.start)
    active: list[tuple[float, int, TimeSpan]] = []
    times, coming = [], 0
    for stage, step, now, end in _windows(spans):
        seconds = dict.fromkeys(LANES, 0.0)
        while now < end:
            while coming < len(spans) and spans[coming].start <= now:
                heappush(active, (spans[coming].end, coming, spans[coming]))
                coming += 1
            while active and active[0][0] <= now:
                heappop(active)
            until = min([end, *(ends for ends, _, _ in active[:1])])
            if coming < len(spans):
                until = min(until, spans[coming].start)
            _divide(seconds, until - now, [span for _, _, span in active], shares)
            now = until
        times.append(StepTime(stage, step, seconds))
    return times


def _windows(spans: Iterable[TimeSpan]) -> Iterator[tuple[str, int, float, float]]:
    """Yield stage, step, start and end of each step, in the order in which they ended."""
    first: dict[tuple[str, int], float] = {}
    last: dict[tuple[str, int], float] = {}
    for span in spans:
        key = (span.stage, span.step)
        first[key] = min(first.get(key, span.start), span.start)
        last[key] = max(last.get(key, span.end), span.end)
    before = 0.0
    for (stage, step), end in sorted(last.items(), key=lambda item: item[1]):
        yield stage, step, min(end, max(before, first[stage, step])), end
        before = end


def _divide(
    seconds: dict[str, float],
    amount: float,
    active: Sequence[TimeSpan],
    shares: Mapping[tuple[str, int], float],
) -> None:
    """Divide a moment among the lanes of what is in progress."""
    lanes = {lane_of(span.kind): span for span in active}
    if not lanes:
        seconds[WAITING] += amount
        return
    part = amount / len(lanes)
    for lane, span in lanes.items():
        environment = shares.get((span.stage, span.step), 0.0) if lane == SAMPLING else 0.0
        seconds[lane] += part * (1 - environment)
        seconds[ENVIRONMENT] += part * environment


def environment_shares(metrics: Iterable[Record]) -> dict[tuple[str, int], float]:
    """Return the share of its episodes' time that each step spent in environments, 0 to 1."""
    shares = {}
    for record in metrics:
        environment = float(record.get("time/episode/environment", 0.0))
        total = environment + float(record.get("time/episode/sampling", 0.0))
        if total > 0:
            shares[str(record["stage"]), int(record["step"])] = environment / total
    return shares


def totals(times: Sequence[StepTime]) -> dict[str, float]:
    """Add up the seconds of each lane over all steps; lanes that took no time are left out."""
    sums = {lane: sum(time.seconds.get(lane, 0.0) for time in times) for lane in LANES}
    return {lane: seconds for lane, seconds in sums.items() if seconds > 0}


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
    found = []
    for label, total, seconds in merged:
        lanes = zip(LANES, seconds, strict=True)
        parts = tuple((lane, 100 * spent / highest) for lane, spent in lanes if spent)
        found.append(Bar(label, total, parts, tuple(seconds)))
    return found


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
