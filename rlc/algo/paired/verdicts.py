"""Whether a mean is above or below a limit, from a few numbers, looked at as they come in.

The numbers are differences between runs that share a seed: what the seeds have in common falls out
(a paired t test). Two errors are bounded, each by itself: a verdict "above" of a mean that is
below, and the other way round. How:

- One look: the one-sided t tests of both sides. Where all numbers are equal there is no spread to
  compare with, and the sign test decides, whose p-value of n equal signs is 2⁻ⁿ.
- Several looks: each may spend a part of the error, and the parts add up to all of it, so that
  Bonferroni's inequality bounds the error at any moment, whatever the looks have in common. The
  parts are those of the power family α·(k/n)³ (Kim and DeMets 1987, Biometrika 74, 149), little at
  first; there are :data:`MOST_LOOKS` at most, so that enough is left for the last one.
- Several decisions: Holm's step-down procedure (1979, Scandinavian Journal of Statistics 6, 65),
  for the verdicts "above" and "below" each, however they depend on one another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum, inf, sqrt

from rlc.algo.paired.student import power, t_quantile, t_tail
from rlc.records import frozen

MOST_LOOKS = 4
LIKELY = 0.8  # the power by which numbers of pairs are counted
MOST_PAIRS = 10_000
_EQUAL = 1e-12  # of the largest number: a spread that is rounding


@frozen
class MeanAndSpread:
    """The mean of some numbers, and their standard deviation: exactly 0 if they are equal, None of
    fewer than two."""

    count: int
    mean: float | None
    spread: float | None


def sample(values: Sequence[float]) -> MeanAndSpread:
    """Return the mean and the spread of numbers, the same to the bit in any order."""
    count = len(values)
    if not count:
        return MeanAndSpread(0, None, None)
    mean = fsum(values) / count
    if count == 1:
        return MeanAndSpread(1, mean, None)
    spread = sqrt(fsum((value - mean) ** 2 for value in values) / (count - 1))
    return MeanAndSpread(count, mean, spread if spread > _EQUAL * max(map(abs, values)) else 0.0)


def tails(values: Sequence[float], limit: float) -> tuple[float, float]:
    """Return the p-values of the tests that the mean is above a limit, and that it is below. Fewer
    than two numbers say nothing: both are 1."""
    found = sample(values)
    if found.mean is None or found.spread is None:
        return 1.0, 1.0
    beyond = found.mean - limit
    if found.spread == 0:
        if abs(beyond) <= _EQUAL * max(abs(found.mean), abs(limit)):
            return 1.0, 1.0
        p = 0.5**found.count
        return (p, 1.0) if beyond > 0 else (1.0, p)
    t = beyond / (found.spread / sqrt(found.count))
    return t_tail(t, found.count - 1), t_tail(-t, found.count - 1)


def bounds(values: Sequence[float], level: float) -> tuple[float, float] | None:
    """Return the one-sided bounds of a mean, each at ``level``; None of fewer than two numbers."""
    found = sample(values)
    if found.mean is None or found.spread is None:
        return None
    half = t_quantile(1 - level, found.count - 1) * found.spread / sqrt(found.count)
    return found.mean - half, found.mean + half


def looks(planned: int, early: bool) -> Mapping[int, float]:
    """Return after how many of the planned numbers one looks, each with its part of the error: at
    the end alone, or ``early`` too."""
    if planned < 2 or not early:
        return {planned: 1.0}
    ends = {-(-planned * i // MOST_LOOKS) for i in range(1, MOST_LOOKS + 1)}
    at = sorted(end for end in ends if end > 1)
    before = [0, *at[:-1]]
    return {k: (k**3 - last**3) / planned**3 for k, last in zip(at, before, strict=True)}


def tails_so_far(
    values: Sequence[float | None], planned: int, limit: float, early: bool
) -> tuple[float, float]:
    """Return p-values as of :func:`tails` that hold at any look. ``values`` are those known so far,
    in the order in which they were planned, None for one that is missing for good. Without early
    looks one looks once, at what there is."""
    if not early:
        return tails([value for value in values if value is not None], limit)
    above = below = 1.0
    for count, part in looks(planned, early).items():
        if count > len(values):
            break
        known = [value for value in values[:count] if value is not None]
        up, down = tails(known, limit)
        above, below = min(above, up / part), min(below, down / part)
    return above, below


def holm(tails: Sequence[float], among: int | None = None) -> list[float]:
    """Return p-values that are corrected for their number, or for that of ``among`` decisions of
    which some are made elsewhere and count as undecided."""
    most, found, adjusted = among or len(tails), 0.0, [1.0] * len(tails)
    for place, index in enumerate(sorted(range(len(tails)), key=tails.__getitem__)):
        found = max(found, min(1.0, (most - place) * tails[index]))
        adjusted[index] = found
    return adjusted


def pairs_needed(found: MeanAndSpread, limit: float, error: float, early: bool) -> int | None:
    """Return about how many numbers decide with a probability of :data:`LIKELY`, if mean and spread
    are as they were found; None if that is more than :data:`MOST_PAIRS`, or not known."""
    if found.mean is None or found.spread is None:
        return None
    beyond = abs(found.mean - limit)
    if beyond <= _EQUAL * max(abs(found.mean), abs(limit)):
        return None
    effect = beyond / found.spread if found.spread else inf

    def enough(pairs: int) -> bool:
        last = error * looks(pairs, early)[pairs]
        if effect == inf:
            return 0.5**pairs <= last
        return power(pairs, effect, last) >= LIKELY

    low, high = 1, 2
    while not enough(high):
        low, high = high, 2 * high
        if low >= MOST_PAIRS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high if high <= MOST_PAIRS else None
