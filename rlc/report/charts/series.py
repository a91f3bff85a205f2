"""Curves: numbers by step, made fewer without losing what stands out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from attrs import frozen

from rlc.runtime import Record, is_number

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
