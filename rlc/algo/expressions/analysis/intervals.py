"""Intervals of real numbers, and what operations make of them."""

from __future__ import annotations

import math

from rlc.algo.expressions.vocabulary import OPERATIONS
from rlc.records import Record, evolve, frozen


@frozen
class Interval(Record):
    """The numbers from ``low`` to ``high``. An ``open`` end does not belong to it, and neither does
    0 if it is ``nonzero``. An infinite end is open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    nonzero: bool = False

    @property
    def empty(self) -> bool:
        ends_belong = not (self.low_open or self.high_open or (self.nonzero and self.low == 0))
        return self.low > self.high or (self.low == self.high and not ends_belong)

    @property
    def is_point(self) -> bool:
        return self.low == self.high

    def has(self, x: float) -> bool:
        """Whether ``x`` belongs to it."""
        above = x > self.low or (x == self.low and not self.low_open)
        below = x < self.high or (x == self.high and not self.high_open)
        return above and below and not (x == 0 and self.nonzero)

    def __str__(self) -> str:
        if self.is_point:
            return f"{self.low:g}"
        if math.isinf(self.low) and math.isinf(self.high):
            return "any number"
        if math.isinf(self.high):
            return f"{'above' if self.low_open else 'at least'} {self.low:g}"
        if math.isinf(self.low):
            return f"{'below' if self.high_open else 'at most'} {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"

    def _ends(self) -> tuple[tuple[float, bool], tuple[float, bool]]:
        """Both ends in an order in which a smaller low and a larger high end hold more."""
        return (self.low, self.low_open), (self.high, not self.high_open)


_End = tuple[float, bool]


def _between(low: _End, high: _End, nonzero: bool) -> Interval:
    return Interval(low[0], high[0], low[1], not high[1], nonzero)


def meet(a: Interval, b: Interval) -> Interval:
    """What belongs to both; it may be empty."""
    (low_a, high_a), (low_b, high_b) = a._ends(), b._ends()
    return _between(max(low_a, low_b), min(high_a, high_b), a.nonzero or b.nonzero)


def hull(a: Interval, b: Interval) -> Interval:
    """The smallest interval that holds both."""
    (low_a, high_a), (low_b, high_b) = a._ends(), b._ends()
    nonzero = not (a.has(0) or b.has(0))
    return _between(min(low_a, low_b), max(high_a, high_b), nonzero)


def point(x: float) -> Interval:
    return Interval(x, x)


def negative(a: Interval) -> Interval:
    return Interval(-a.high, -a.low, a.high_open, a.low_open, a.nonzero)


def add(a: Interval, b: Interval) -> Interval:
    return Interval(
        -math.inf if -math.inf in (a.low, b.low) else a.low + b.low,
        math.inf if math.inf in (a.high, b.high) else a.high + b.high,
        a.low_open or b.low_open,
        a.high_open or b.high_open,
    )


def multiply(a: Interval, b: Interval) -> Interval:
    corners = [
        _corner(x, y)
        for x in ((a.low, a.low_open), (a.high, a.high_open))
        for y in ((b.low, b.low_open), (b.high, b.high_open))
    ]
    low = min(corners)
    high = max((value, not is_open) for value, is_open in corners)
    return _between(low, high, not (a.has(0) or b.has(0)))


def _corner(x: _End, y: _End) -> _End:
    """The product of two ends, and whether it is open."""
    if x[0] == 0 or y[0] == 0:
        return 0.0, not ((x[0] == 0 and not x[1]) or (y[0] == 0 and not y[1]))
    return x[0] * y[0], x[1] or y[1]


def square(a: Interval) -> Interval:
    size = magnitude(a)
    return multiply(size, size)


def magnitude(a: Interval) -> Interval:
    """The absolute values."""
    if a.low >= 0:
        return a
    if a.high <= 0:
        return negative(a)
    high = max((-a.low, not a.low_open), (a.high, not a.high_open))
    return _between((0.0, a.nonzero), high, a.nonzero)


def reciprocal(a: Interval) -> Interval:
    """One over the numbers other than 0."""
    if a.low < 0 < a.high:
        return Interval(nonzero=True)
    if a.high <= 0:
        return negative(reciprocal(negative(a)))
    low = 1 / a.high if a.high else math.inf
    high = 1 / a.low if a.low else math.inf
    return Interval(low, high, a.high_open or math.isinf(a.high), a.low_open or not a.low)


def minimum(a: Interval, b: Interval) -> Interval:
    (low_a, high_a), (low_b, high_b) = a._ends(), b._ends()
    return _between(min(low_a, low_b), min(high_a, high_b), a.nonzero and b.nonzero)


def maximum(a: Interval, b: Interval) -> Interval:
    return negative(minimum(negative(a), negative(b)))


def increasing(op: str, a: Interval) -> Interval:
    """What an increasing function makes of it."""
    of = OPERATIONS[op].of
    low, high = of(a.low), of(a.high)
    return Interval(low, high, a.low_open or math.isinf(a.low), a.high_open or math.isinf(a.high))


def total(a: Interval) -> Interval:
    """The sum of one or more of its numbers."""
    low = a.low if a.low >= 0 else -math.inf
    high = a.high if a.high <= 0 else math.inf
    return Interval(low, high, a.low_open, a.high_open)


def average(a: Interval) -> Interval:
    """The mean of some of its numbers."""
    return evolve(a, nonzero=a.nonzero and not a.low < 0 < a.high)
