"""Curves of block characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """Draw a curve on one line; longer series are averaged down to ``width``."""
    return "".join(chart(values, width, 1))


def chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Draw a curve on several lines, the highest first; its lowest value is a low bar."""
    points = averaged(values, width)
    if not points:
        return []
    low, high = min(points), max(points)
    varies = min(values) < max(values)  # means of equal numbers may differ in their last bits
    scale = (height * len(_BARS) - 1) / (high - low) if varies and high > low else 0.0
    eighths = [1 + round((point - low) * scale) for point in points]
    lines = []
    for row in reversed(range(height)):
        filled = (min(max(eighth - row * len(_BARS), 0), len(_BARS)) for eighth in eighths)
        lines.append("".join(" " if not part else _BARS[part - 1] for part in filled))
    return lines


def stretched(values: Sequence[float], width: int) -> list[float]:
    """Return a short series with each value as often as there is room for all."""
    times = max(1, width // max(1, len(values)))
    return [value for value in values for _ in range(times)]


def averaged(values: Sequence[float], width: int) -> list[float]:
    """Return the means of at most ``width`` equally long parts of a series."""
    count = min(width, len(values))
    cuts = [round(i * len(values) / count) for i in range(count + 1)] if count else []
    return [fmean(values[a:b]) for a, b in pairwise(cuts)]
