"""Configurations as lines over parallel axes: one for each value that is varied, and the metric."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attrs import frozen

from rlc.plan import AxisPlan, SweepPlan, values_text
from rlc.report.formatting import number
from rlc.sweeps import ConfigurationResult

WIDTH, HEIGHT = 1000.0, 380.0
_TOP, _BOTTOM, _SIDE = 46.0, 352.0, 90.0
_NUMBERS = 5  # labels of an axis of numbers
_LONGEST = 18  # characters of a label


@frozen
class AxisLabel:
    y: float
    text: str


@frozen
class VerticalAxis:
    """An axis. ``anchor`` is the side of it that its labels stand on."""

    x: float
    name: str
    labels: tuple[AxisLabel, ...]
    anchor: str


@frozen
class ConfigurationLine:
    """A configuration. ``shade`` is from 0, the worst, to 1, the best."""

    path: str
    shade: float
    best: bool
    tip: str


@frozen
class Parallel:
    axes: tuple[VerticalAxis, ...]
    lines: tuple[ConfigurationLine, ...]
    width: float = WIDTH
    height: float = HEIGHT


def parallel(plan: SweepPlan, results: Sequence[ConfigurationResult]) -> Parallel | None:
    """Draw the configurations that have a value; None if there are fewer than two."""
    shown = [result for result in results if result.mean is not None]
    if len(shown) < 2:
        return None
    means = [result.mean for result in shown if result.mean is not None]
    low, high = min(means), max(means)
    count = len(plan.axes) + 1
    places = [_SIDE + i * (WIDTH - 2 * _SIDE) / (count - 1) for i in range(count)]
    axes = [
        VerticalAxis(
            x, _short(axis.path), tuple(_labels(axis)), "end" if x < WIDTH / 2 else "start"
        )
        for x, axis in zip(places, plan.axes, strict=False)
    ]
    marks = sorted({low, high} | {low + (high - low) * i / 4 for i in range(5)})
    ends = tuple(AxisLabel(_y(_part(mark, low, high)), f"{mark:.3g}") for mark in marks)
    axes.append(VerticalAxis(places[-1], _short(plan.metric.name), ends, "start"))
    lines = []
    for result in reversed(shown):  # the best is drawn over the others
        mean = result.mean or 0.0
        spots = [_place(axis, result.configuration[axis.path]) for axis in plan.axes]
        ys = [_y(spot) for spot in (*spots, _part(mean, low, high))]
        good = _part(mean, low, high) if plan.metric.more_is_better else _part(-mean, -high, -low)
        points = "L".join(f"{x:.0f} {y:.0f}" for x, y in zip(places, ys, strict=True))
        tip = f"{values_text(result.configuration)}: {number(mean)}"
        lines.append(ConfigurationLine(f"M{points}", round(good, 3), result is shown[0], tip))
    return Parallel(tuple(axes), tuple(lines))


def _y(part: float) -> float:
    return round(_BOTTOM - part * (_BOTTOM - _TOP), 1)


def _part(value: float, low: float, high: float) -> float:
    """The place of a value between two others, from 0 to 1."""
    return (value - low) / (high - low) if high > low else 0.5


def _place(axis: AxisPlan, text: str) -> float:
    if axis.range is None:
        return _part(axis.values.index(text), 0, len(axis.values) - 1)
    low, high, value = axis.range.low, axis.range.high, float(text)
    if axis.range.scale == "log":
        low, high, value = math.log(low), math.log(high), math.log(value)
    return _part(value, low, high)


def _labels(axis: AxisPlan) -> list[AxisLabel]:
    if axis.range is None:
        return [AxisLabel(_y(_place(axis, text)), _short(text)) for text in axis.values]
    low, high = axis.range.low, axis.range.high
    parts = [i / (_NUMBERS - 1) for i in range(_NUMBERS)]
    if axis.range.scale == "log":
        return [AxisLabel(_y(part), f"{low * (high / low) ** part:.2g}") for part in parts]
    return [AxisLabel(_y(part), f"{low + (high - low) * part:g}") for part in parts]


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
