"""Charts as a template draws them: paths in a box of 1000 by 1000, labels in per cent of it.

The box is stretched to the width of the page, so that a chart fits a phone and a desktop; text,
which must not be stretched, is laid over it.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from rlc.report.charts.series import Series, smoothed, table_steps, thinned, ticks
from rlc.report.formatting import number

BOX = 1000.0
COLORS = 8  # of the page; further curves start again, with dashes


@frozen
class Curve:
    """A path (and that of its moving mean), the outline of its band, its colour and dashes."""

    name: str
    color: int
    dashed: bool
    path: str
    mean: str
    band: str
    dot: tuple[float, float] | None  # a single value is no path
    last: str


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
    curves: tuple[Curve, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    head: tuple[str, ...]
    table: tuple[tuple[str, ...], ...]
    places: tuple[float, ...]

    @property
    def widest(self) -> str:
        """The longest label of the upright axis."""
        return max((tick.text for tick in self.y_ticks), key=len)

    @property
    def summary(self) -> str:
        """The chart in a sentence, for those who do not see it."""
        ends = "; ".join(f"{curve.name} is last {curve.last}" for curve in self.curves)
        return f"{self.title} by {self.x_name}: {ends}"


@frozen
class _Scale:
    low: float
    high: float

    def of(self, value: float) -> float:
        """Return the place of a value on the scale, from 0 to 1."""
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.5


def chart(
    id: str,
    title: str,
    curves: Sequence[Series | None],
    *,
    note: str = "",
    bounds: tuple[float | None, float | None] = (None, None),
    x_name: str = "step",
) -> Chart | None:
    """Return the curves that are not None in one box, or None if all are. ``bounds`` are values
    that the scale includes."""
    found = [curve for curve in curves if curve is not None]
    if not found:
        return None
    x = _Scale(min(c.steps[0] for c in found), max(c.steps[-1] for c in found))
    edges = [value for value in bounds if value is not None]
    for curve in found:
        for values in (curve.values, *(curve.edges or ())):
            edges += [min(values), max(values)]
    y_ticks = ticks(min(edges), max(edges))
    y = _Scale(y_ticks[0], y_ticks[-1])
    window = max(smoothed(curve.values)[1] for curve in found)
    if window:
        note = f"{note}{'; ' if note else ''}thick: mean of {window} steps"
    # Whole steps within the scale, few enough for a phone.
    marks = [int(m) for m in ticks(x.low, x.high, 6) if m == int(m) and x.low <= m <= x.high]
    x_ticks = marks if len(marks) > 1 else sorted({int(x.low), int(x.high)})
    steps = table_steps(found)
    by_step = [dict(zip(curve.steps, curve.values, strict=True)) for curve in found]
    return Chart(
        id=id,
        title=title,
        note=note,
        x_name=x_name,
        curves=tuple(_curve(curve, i, x, y) for i, curve in enumerate(found)),
        x_ticks=tuple(Tick(100 * x.of(step), f"{step:,}") for step in x_ticks),
        y_ticks=tuple(Tick(100 * y.of(value), number(value)) for value in y_ticks),
        head=(x_name, *(curve.name for curve in found)),
        table=tuple(
            (f"{step:,}", *(number(values[step]) if step in values else "" for values in by_step))
            for step in steps
        ),
        places=tuple(round(100 * x.of(step), 2) for step in steps),
    )


def _curve(curve: Series, index: int, x: _Scale, y: _Scale) -> Curve:
    def points(values: Sequence[float]) -> list[str]:
        steps = curve.steps
        return [
            f"{BOX * x.of(steps[i]):.0f} {BOX * (1 - y.of(values[i])):.0f}" for i in thinned(values)
        ]

    single = len(curve.values) == 1
    means, _ = smoothed(curve.values)
    band = ""
    if curve.edges is not None and not single:
        lower, upper = (smoothed(edge)[0] or edge for edge in curve.edges)
        band = f"M{'L'.join([*points(upper), *reversed(points(lower))])}Z"  # there and back
    return Curve(
        name=curve.name,
        color=index % COLORS,
        dashed=index >= COLORS,
        path="" if single else f"M{'L'.join(points(curve.values))}",
        mean=f"M{'L'.join(points(means))}" if means else "",
        band=band,
        dot=(100 * x.of(curve.steps[0]), 100 * y.of(curve.values[0])) if single else None,
        last=number(curve.values[-1]),
    )
