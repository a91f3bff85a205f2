"""Curves, and charts of them as a template draws them: paths in a box of 1000 by 1000, labels in
per cent of it.

The box is stretched to the width of the page, so that a chart fits a phone and a desktop; text,
which must not be stretched, is laid over it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from attrs import evolve, frozen

from rlc.report.formatting import number
from rlc.runtime import Record, is_number

COLORS, DASHES = 8, 12  # of the page: each curve has another pair of them
_PASSED = 0.01  # the share of a scale that a bound may be passed by
_APART = 7.0  # per cent of the height between labels at the ends of curves


@frozen
class Figure:
    """What a chart shows, before it is drawn. ``bounds`` are values that the scale includes."""

    id: str
    title: str
    curves: tuple[Series, ...]
    note: str = ""
    bounds: tuple[float | None, float | None] = (None, None)
    x_name: str = "step"
    band: str = ""  # what the bands of its curves are
    by: str = ""  # the stage whose steps these are


@frozen
class Mark:
    """A letter at the end of a curve; ``x`` and ``y`` in per cent, from the left and the bottom."""

    text: str
    x: float
    y: float


@frozen
class Curve:
    """A path (and that of its moving mean), the outline of its band, its colour and dashes."""

    name: str
    color: int
    dash: int
    path: str
    mean: str
    band: str
    dot: tuple[float, float] | None  # a single value is no path
    last: str
    mark: Mark | None = None


@frozen
class Tick:
    """``place`` in per cent, from the left or from the bottom."""

    place: float
    text: str


@frozen
class Chart:
    """``table`` has a row for each shown step: the step, then each curve's value or "".
    ``places`` holds the distance of each row from the left, in per cent."""

    id: str
    title: str
    note: str
    x_name: str
    by: str
    span: tuple[int, int]  # the steps at the left and the right
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    head: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    places: tuple[float, ...]

    @property
    def widest(self) -> str:
        """The longest label of the vertical axis."""
        return max((tick.text for tick in self.y_ticks), key=len)

    @property
    def summary(self) -> str:
        """A sentence for readers who do not see the chart."""
        ends = "; ".join(f"{curve.name} is last {curve.last}" for curve in self.curves)
        return f"{self.title} by {self.x_name}: {ends}"


@frozen
class _Scale:
    low: float
    high: float

    def of(self, value: float) -> float:
        """Return the place of a value on the scale, from 0 to 1."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def figure(
    id: str,
    title: str,
    curves: Sequence[Series | None],
    *,
    note: str = "",
    bounds: tuple[float | None, float | None] = (None, None),
    x_name: str = "step",
    band: str = "",
) -> Figure | None:
    """Return the curves that are not None as a figure, or None if all are."""
    found = tuple(curve for curve in curves if curve is not None)
    return Figure(id, title, found, note, bounds, x_name, band) if found else None


def draw(figure: Figure, places: Sequence[int] | None = None, marks: Sequence[str] = ()) -> Chart:
    """Draw a figure. ``places`` are those of its curves among the colours and dashes of the page,
    by default one after the other; ``marks`` are letters to put at their ends."""
    found = figure.curves
    x = _Scale(min(c.steps[0] for c in found), max(c.steps[-1] for c in found))
    edges = [value for value in figure.bounds if value is not None]
    for curve in found:
        for values in (curve.values, *(curve.edges or ())):
            edges += [min(values), max(values)]
    low, high = min(edges), max(edges)
    for bound in figure.bounds:  # what is over it by a rounding needs no room of its own
        if bound is not None and 0 < abs(low - bound) < (high - low) * _PASSED:
            low = bound
    y_ticks = ticks(low, high)
    y = _Scale(y_ticks[0], y_ticks[-1])
    notes = [figure.note] if figure.note else []
    if figure.band and any(curve.spread for curve in found):
        notes.append(f"band: {figure.band}")
    if window := max(smoothed(curve.values)[1] for curve in found):
        notes.append(f"{'' if marks else 'thick: '}mean of {window} steps")
    # Whole steps within the scale, few enough for a phone.
    whole = [int(m) for m in ticks(x.low, x.high, 6) if m == int(m) and x.low <= m <= x.high]
    x_ticks = whole if len(whole) > 1 else sorted({int(x.low), int(x.high)})
    steps = table_steps(found)
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for curve in found]
    placed = zip(found, places or range(len(found)), strict=True)
    drawn = [_curve(curve, place, x, y) for curve, place in placed]
    if marks:
        drawn = _marked(drawn, found, marks, x, y)
    return Chart(
        id=figure.id,
        title=figure.title,
        note="; ".join(notes),
        x_name=figure.x_name,
        by=figure.by,
        span=(int(x.low), int(x.high)),
        curves=tuple(drawn),
        x_ticks=tuple(Tick(100 * x.of(step), f"{step:,}") for step in x_ticks),
        y_ticks=tuple(Tick(100 * y.of(value), number(value, 6)) for value in y_ticks),
        head=(figure.x_name, *(curve.name for curve in found)),
        table=tuple(
            (f"{step:,}", *(number(values[step]) if step in values else "" for values in by_step))
            for step in steps
        ),
        places=tuple(round(100 * x.of(step), 2) for step in steps),
    )


def _marked(
    drawn: Sequence[Curve], found: Sequence[Series], marks: Sequence[str], x: _Scale, y: _Scale
) -> list[Curve]:
    """Put a letter at the end of each curve, moved up where another one ends close by. Of a curve
    with a moving mean that alone is left: there are others in the chart."""
    ends = [
        (100 * x.of(curve.steps[-1]), 100 * y.of((smoothed(curve.values)[0] or curve.values)[-1]))
        for curve in found
    ]
    placed: dict[int, tuple[float, float]] = {}
    for i in sorted(range(len(ends)), key=lambda i: (ends[i][1], i)):
        across, up = ends[i]
        for other_across, other_up in sorted(placed.values(), key=lambda place: place[1]):
            if abs(other_across - across) < _APART and abs(other_up - up) < _APART:
                up = other_up + _APART
        placed[i] = (across, up)
    return [
        evolve(
            curve,
            path="" if curve.mean else curve.path,
            mark=Mark(text, round(placed[i][0], 2), round(placed[i][1], 2)),
        )
        for i, (curve, text) in enumerate(zip(drawn, marks, strict=True))
    ]


def _curve(curve: Series, place: int, x: _Scale, y: _Scale) -> Curve:
    def points(values: Sequence[float]) -> list[str]:
        places = [(x.of(curve.steps[i]), 1 - y.of(values[i])) for i in thinned(values)]
        return [f"{1000 * across:.0f} {1000 * down:.0f}" for across, down in places]

    single = len(curve.values) == 1
    means, _ = smoothed(curve.values)
    band = ""
    if curve.edges is not None and not single:
        lower, upper = (smoothed(edge)[0] or edge for edge in curve.edges)
        band = f"M{'L'.join([*points(upper), *reversed(points(lower))])}Z"  # there and back
    return Curve(
        name=curve.name,
        color=place % COLORS,
        dash=place % DASHES,
        path="" if single else f"M{'L'.join(points(curve.values))}",
        mean=f"M{'L'.join(points(means))}" if means else "",
        band=band,
        dot=(100 * x.of(curve.steps[0]), 100 * y.of(curve.values[0])) if single else None,
        last=number(curve.values[-1], 3),
    )


MOST_POINTS = 240  # of a curve that is drawn
MOST_ROWS = 100  # of the table behind a chart
_ROUNDING, _LEAST = 1e-9, 1e-290  # relative and absolute: less is no difference
_SMOOTH_FROM = 60  # points from which on a curve gets a moving mean


@frozen
class Series:
    """One curve. ``spread`` is the distance of a band's edges from it; None without a band."""

    name: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    spread: tuple[float, ...] | None = None

    @property
    def edges(self) -> tuple[list[float], list[float]] | None:
        """The lower and the upper edge of the band."""
        if self.spread is None:
            return None
        pairs = list(zip(self.values, self.spread, strict=True))
        return [v - s for v, s in pairs], [v + s for v, s in pairs]


def series(name: str, records: Sequence[Record], key: str, spread: str = "") -> Series | None:
    """Return a metric by step as a curve, exactly as recorded; None if no step has it."""
    found = [r for r in records if is_number(r.get(key))]
    if not found:
        return None
    steps = tuple(int(record["step"]) for record in found)
    values = tuple(float(record[key]) for record in found)
    if not spread or any(not is_number(record.get(spread)) for record in found):
        return Series(name, steps, values)
    return Series(name, steps, values, tuple(float(record[spread]) for record in found))


def thinned(values: Sequence[float], most: int = MOST_POINTS) -> list[int]:
    """Return the positions of about ``most`` values at the most: the first, the last, and the
    lowest and highest of equally long parts. All of them if they are few."""
    if len(values) <= most:
        return list(range(len(values)))
    parts = most // 2
    cuts = [round(part * len(values) / parts) for part in range(parts + 1)]
    kept = {0, len(values) - 1}
    for start, end in pairwise(cuts):
        kept.add(min(range(start, end), key=values.__getitem__))
        kept.add(max(range(start, end), key=values.__getitem__))
    return sorted(kept)


def table_steps(curves: Sequence[Series], most: int = MOST_ROWS) -> list[int]:
    """Return the steps for a table of the curves: evenly spaced, and each curve's extremes."""
    steps = sorted({step for curve in curves for step in curve.steps})
    if len(steps) <= most:
        return steps
    kept = {steps[round(i * (len(steps) - 1) / (most - 1))] for i in range(most)}
    for curve in curves:
        pairs = list(zip(curve.values, curve.steps, strict=True))
        kept |= {min(pairs)[1], max(pairs)[1]}
    return sorted(kept)


def smoothed(values: Sequence[float]) -> tuple[list[float], int]:
    """Return a centred moving mean and the number of values in it; ([], 0) for a short curve."""
    if len(values) < _SMOOTH_FROM:
        return [], 0
    half = max(2, len(values) // 40)
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    means = []
    for i in range(len(values)):
        low, high = max(0, i - half), min(len(values), i + half + 1)
        means.append((sums[high] - sums[low]) / (high - low))
    return means, 2 * half + 1


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers that span ``low`` to ``high``, about ``most`` of them at the most. What
    differs by a rounding is one value, with room around it."""
    size = max(abs(low), abs(high))
    if high - low <= max(_ROUNDING * size, _LEAST):
        pad = size * 0.1 if size > _LEAST else 0.5
        low, high = low - pad, high + pad
    rough = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 2.5, 5, 10) if f * power >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [i * step for i in range(first, last + 1)]
