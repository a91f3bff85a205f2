"""Student's t distribution, central and noncentral, to about 1e-12, without SciPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import erfc, exp, fsum, lgamma, log, log1p, sqrt

_TINY = 1e-300
_SMALLEST_LOG = -90.0  # of a density that no longer matters


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) for Student's t with ``freedom`` degrees of freedom (Abramowitz and Stegun,
    26.7.1: an incomplete beta function)."""
    if t < 0:
        return 1.0 - t_tail(-t, freedom)
    if t > 1:  # elsewhere a difference would lose the digits of a small tail
        return _beta_ratio(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 0.5 - _beta_ratio(t * t / (freedom + t * t), 0.5, freedom / 2) / 2


@cache
def t_quantile(tail: float, freedom: int) -> float:
    """Return the t with P(T > t) = ``tail``, a number between 0 and 1."""
    if tail > 0.5:
        return -t_quantile(1.0 - tail, freedom)
    return 0.0 if tail == 0.5 else _root(lambda t: t_tail(t, freedom) - tail, 0.0, 1.0)


def noncentral_tail(t: float, freedom: int, shift: float) -> float:
    """Return P(T > t) for the noncentral t distribution, that of (Z + ``shift``) / U: Z is standard
    normal, and U² is χ² over its ``freedom``.

    It is the mean of Φ(shift − t·U) over U (Johnson, Kotz and Balakrishnan 1995, section 31.2), by
    the trapezoidal rule in log U: the integrand is analytic and vanishes at both ends, where that
    rule converges exponentially.
    """
    half = freedom / 2
    scale = log(2) + half * log(half) - lgamma(half)
    top = log(1 + 40 / sqrt(freedom)) if freedom > 1 else 2.5
    bottom = max(_SMALLEST_LOG / freedom, -60.0) - 2
    step = min(0.02, 0.2 / (1 + abs(shift)), 0.2 / sqrt(freedom))
    values = []
    for i in range(int((top - bottom) / step) + 1):
        y = bottom + i * step
        density = scale + freedom * y - half * exp(2 * y)
        if density > _SMALLEST_LOG:
            values.append(exp(density) * erfc((t * exp(y) - shift) / sqrt(2)) / 2)
    return min(1.0, step * fsum(values))


def power(pairs: int, effect: float, level: float) -> float:
    """Return how likely a one-sided t test at error ``level`` finds a mean that is ``effect``
    standard deviations above its limit, from so many pairs (two at least)."""
    freedom = pairs - 1
    return noncentral_tail(t_quantile(level, freedom), freedom, effect * sqrt(pairs))


def effect_seen(pairs: int, level: float, likely: float) -> float:
    """Return the effect that :func:`power` is ``likely`` to find, in standard deviations."""
    return _root(lambda effect: likely - power(pairs, effect, level), 0.0, 1.0, 1e-4)


def _root(falling: Callable[[float], float], low: float, high: float, close: float = 0.0) -> float:
    """Return where a falling function crosses zero, from ``low`` on, by bisection."""
    while falling(high) > 0:
        low, high = high, 2 * high
    while high - low > close * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return (low + high) / 2


def _beta_ratio(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), by the continued fraction of
    Numerical Recipes (third edition, 6.4), which converges fast below (a + 1) / (a + b + 2)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1.0 - _beta_ratio(1.0 - x, b, a)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x)) / a
    c, d = 1.0, 1.0 / _not_zero(1 - (a + b) * x / (a + 1))
    found = d
    for m in range(1, 10_000):
        for factor in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _not_zero(1.0 + factor * d)
            c = _not_zero(1.0 + factor / c)
            found *= c * d
        if abs(c * d - 1.0) < 1e-16:
            break
    return front * found


def _not_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
