"""Scopes: partitions of values by a label, and the statistics of each.

Whether a scope is constant is decided by ``max == min`` before anything is subtracted or divided:
the mean of three times 0.1 is one bit off 0.1, and that bit divided by its own spread is an
advantage of -1. Statistics of a scope do not depend on the order its values come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Bools, Floats, Ints
from rlc.records import frozen

T = TypeVar("T", bound=np.generic)

_DIGIT = 16  # bits of a label that are sorted at once, in linear time


def stable_order(label_V: Ints) -> Ints | None:
    """Return the order that sorts integer labels, ties as they come; None if they are sorted.

    Labels within 32 bits are sorted digit by digit, three times as fast as by comparing.
    """
    if not (label_V[1:] < label_V[:-1]).any():
        return None
    low = int(label_V.min())
    span = int(label_V.max()) - low
    if span >> 2 * _DIGIT:
        return np.argsort(label_V, kind="stable")
    offset_V = label_V - low
    order_V: Ints = np.argsort(offset_V.astype(np.uint16), kind="stable")
    if span >> _DIGIT:
        high_V = (offset_V >> _DIGIT).astype(np.uint16)
        order_V = order_V[np.argsort(high_V[order_V], kind="stable")]
    return order_V


@frozen(eq=False)
class ScopeSummary:
    """Of each scope: the sum of the weights, the weighted mean, and the range of the values that
    weigh anything."""

    weight_S: Floats
    mean_S: Floats
    low_S: Floats
    high_S: Floats

    @property
    def constant(self) -> Bools:
        """True for scopes whose values are all equal, shape (S,)."""
        return self.high_S <= self.low_S


class Scopes:
    """A partition of V values into S scopes by integer label; fastest where they are sorted.

    Scopes of one size form a matrix, one row a scope, so each statistic is a few array
    operations. Addends are sorted within their row before they are added: floating-point sums
    depend on the order of the addends, and an advantage must not depend on the batch's.
    """

    def __init__(self, label_V: Ints) -> None:
        self._order_V = stable_order(label_V)
        sorted_V = label_V if self._order_V is None else label_V[self._order_V]
        first_V = np.ones(len(label_V), dtype=bool)
        first_V[1:] = sorted_V[1:] != sorted_V[:-1]
        starts_S = np.flatnonzero(first_V)
        self.size_S: Ints = np.diff(starts_S, append=len(label_V))
        self._members = list(self._members_by_size(starts_S))

    @cached_property
    def _scope(self) -> Ints:
        scope_V: Ints = np.repeat(np.arange(len(self.size_S)), self.size_S)
        if self._order_V is None:
            return scope_V
        out_V = np.empty_like(scope_V)
        out_V[self._order_V] = scope_V
        return out_V

    def spread(self, x_S: npt.NDArray[T]) -> npt.NDArray[T]:
        """Repeat one item per scope for each of the scope's values, shape (V,)."""
        return np.repeat(x_S, self.size_S) if self._order_V is None else x_S[self._scope]

    def summary(self, x_V: Floats, weight_V: Floats | None = None) -> ScopeSummary:
        """Return weights, mean and range of each scope; without weights each value counts once."""
        if weight_V is None:
            weight_S = self.size_S.astype(np.float64)
            total_S, low_S, high_S = (np.empty(len(self.size_S)) for _ in range(3))
            for scopes_P, members_Pn in self._members:
                sorted_Pn = np.sort(self._rows(x_V, members_Pn), axis=1)
                total_S[scopes_P] = sorted_Pn.sum(axis=1)
                low_S[scopes_P], high_S[scopes_P] = sorted_Pn[:, 0], sorted_Pn[:, -1]
        else:
            weight_S = self.total(weight_V)
            total_S = self.total(weight_V * x_V)
            low_V = high_V = x_V
            if not (weight_V > 0).all():
                low_V = np.where(weight_V > 0, x_V, np.inf)
                high_V = np.where(weight_V > 0, x_V, -np.inf)
            low_S, high_S = self.reduced(low_V, _smallest), self.reduced(high_V, _largest)
        return ScopeSummary(weight_S, total_S / weight_S, low_S, high_S)

    def total(self, x_V: Floats) -> Floats:
        """Return the sum of each scope, shape (S,), bitwise the same in any order of the values."""
        return self.reduced(x_V, lambda rows_Pn: np.sort(rows_Pn, axis=1).sum(axis=1))

    def largest_other(self, x_V: Floats) -> Floats:
        """Return for each value the largest of the others in its scope; -inf without others."""
        best_S, second_S = self.reduced(x_V, _largest), self.reduced(x_V, _second)
        best_V = self.spread(best_S)
        return np.where(x_V == best_V, self.spread(second_S), best_V)

    def by_member(self, x_V: Floats, of_rows: Callable[[Floats], Floats]) -> Floats:
        """Return for each value what a function of the rows of its scope's values says of it."""
        out_V = np.empty_like(x_V)
        for _, members_Pn in self._members:
            found_Pn = of_rows(self._rows(x_V, members_Pn))
            if isinstance(members_Pn, tuple):
                return found_Pn.reshape(-1)
            out_V[members_Pn] = found_Pn
        return out_V

    def reduced(self, x_V: Floats, reduce: Callable[[Floats], npt.ArrayLike]) -> Floats:
        out_S = np.empty(len(self.size_S))
        for scopes_P, members_Pn in self._members:
            out_S[scopes_P] = reduce(self._rows(x_V, members_Pn))
        return out_S

    def _rows(self, x_V: Floats, members_Pn: Ints | tuple[int, int]) -> Floats:
        return x_V.reshape(members_Pn) if isinstance(members_Pn, tuple) else x_V[members_Pn]

    def _members_by_size(
        self, starts_S: Ints
    ) -> Iterator[tuple[Ints | slice, Ints | tuple[int, int]]]:
        """Yield for each size the scopes that have it, and where their values are; a shape if the
        values themselves are the matrix."""
        sizes_D = np.unique(self.size_S)
        if self._order_V is None and len(sizes_D) == 1:
            yield slice(None), (len(starts_S), int(sizes_D[0]))
            return
        for size in sizes_D.tolist():
            scopes_P = np.flatnonzero(self.size_S == size)
            at_Pn = starts_S[scopes_P, None] + np.arange(size)
            yield scopes_P, at_Pn if self._order_V is None else self._order_V[at_Pn]


_smallest = partial(np.min, axis=1)
_largest = partial(np.max, axis=1)


def _second(rows_Pn: Floats) -> Floats | float:
    return np.sort(rows_Pn, axis=1)[:, -2] if rows_Pn.shape[1] > 1 else -np.inf


# Statistics: of values x_V with whole weights w_V (None: 1 each), a number for each value. Those of
# the others in a scope leave the value itself out; where none is left they are the value.


def mean(scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool) -> Floats:
    """Return ``Σ w x / W``, between the smallest and the largest of the values; of a scope in which
    nothing weighs anything, each value itself."""
    of = scopes.summary(x_V, weight_V)
    # What is infinite has overflowed, and is not to be hidden by its limits.
    mean_S = np.where(np.isinf(of.mean_S), of.mean_S, np.clip(of.mean_S, of.low_S, of.high_S))
    mean_V = scopes.spread(mean_S)
    sum_V = scopes.spread(of.weight_S)
    if others:
        own_V = 1.0 if weight_V is None else weight_V
        centred_V = x_V - mean_V
        mean_V = x_V - centred_V * (sum_V / (sum_V - own_V))
        low_V, high_V = extremes(scopes, x_V, weight_V, others)
        mean_V, sum_V = np.clip(mean_V, low_V, high_V), sum_V - own_V
    return np.where(sum_V > 0, mean_V, x_V)


def total(scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool) -> Floats:
    """Return ``Σ w x``."""
    weighted_V = x_V if weight_V is None else weight_V * x_V
    sum_V = scopes.spread(scopes.total(weighted_V))
    return sum_V - weighted_V if others else sum_V


def count(scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool) -> Floats:
    """Return how many values weigh anything."""
    there_V = np.ones_like(x_V) if weight_V is None else (weight_V > 0).astype(np.float64)
    return total(scopes, there_V, None, others)


def extremes(
    scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool
) -> tuple[Floats, Floats]:
    """Return the smallest and the largest of the values that weigh anything; the value itself where
    there are none."""
    found = []
    for sign in (-1.0, 1.0):
        signed_V = sign * x_V
        if weight_V is not None:
            signed_V = np.where(weight_V > 0, signed_V, -np.inf)
        if others:
            best_V = scopes.largest_other(signed_V)
        else:
            best_V = scopes.spread(scopes.reduced(signed_V, _largest))
        found.append(np.where(best_V == -np.inf, x_V, sign * best_V))
    return found[0], found[1]


def std(scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool, ddof: float) -> Floats:
    """Return ``sqrt(Σ w (x - mean)² / (W - ddof))``, exactly 0 where all values are equal."""
    return _deviation(scopes, x_V, weight_V, others, ddof, centred=True)


def rms(scopes: Scopes, x_V: Floats, weight_V: Floats | None, others: bool, ddof: float) -> Floats:
    """Return ``sqrt(Σ w x² / (W - ddof))``; 0 where there are too few values for it."""
    return _deviation(scopes, x_V, weight_V, others, ddof, centred=False)


def _deviation(
    scopes: Scopes,
    x_V: Floats,
    weight_V: Floats | None,
    others: bool,
    ddof: float,
    centred: bool,
) -> Floats:
    """Return a deviation from the mean or from 0. Squares are those of ``d = x - mean``, or ``x``,
    as parts of the widest of the scope, so that they neither underflow nor overflow.

    Without the value itself ``Σ_{j≠i} w_j (x_j - mean of others)²`` is
    ``Σ w d² - w_i d_i² W / (W - w_i)``; from 0 it is ``Σ w x² - w_i x_i²``.
    """
    of = scopes.summary(x_V, weight_V)
    centre_S = of.mean_S if centred else np.zeros_like(of.mean_S)
    relative_V = x_V - scopes.spread(centre_S)
    widest_S = np.maximum(of.high_S - centre_S, centre_S - of.low_S)
    relative_V /= scopes.spread(widest_S)
    squares_V = relative_V**2
    if weight_V is not None:
        relative_V[weight_V == 0] = squares_V[weight_V == 0] = 0.0
        squares_V *= weight_V
    left_S, squares_S = of.weight_S - ddof, scopes.total(squares_V)
    if not others:
        size_S = np.where(left_S > 0, widest_S * np.sqrt(squares_S / left_S), 0.0)
        size_S = np.where(of.constant if centred else widest_S <= 0, 0.0, size_S)
        return scopes.spread(size_S)
    own_V = np.ones_like(x_V) if weight_V is None else weight_V
    sum_V = scopes.spread(of.weight_S)
    share_V = sum_V / (sum_V - own_V) if centred else 1.0
    rest_V = np.maximum(scopes.spread(squares_S) - own_V * relative_V**2 * share_V, 0.0)
    left_V = sum_V - own_V - ddof
    size_V = scopes.spread(widest_S) * np.sqrt(rest_V / left_V)
    low_V, high_V = extremes(scopes, x_V, weight_V, others)
    nothing_V = (low_V == high_V) if centred else (low_V == 0) & (high_V == 0)
    return np.where(nothing_V | (left_V <= 0), 0.0, size_V)


def rank(scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    """Return 1 for the smallest of the values that weigh anything, and so on; equals have the mean
    of their ranks."""
    compared_V = x_V if weight_V is None else np.where(weight_V > 0, x_V, np.inf)

    def of_rows(rows_Pn: Floats) -> Floats:
        found_Pn = np.empty_like(rows_Pn)
        for row_n, ranks_n in zip(rows_Pn, found_Pn, strict=True):
            sorted_n = np.sort(row_n)
            below_n = np.searchsorted(sorted_n, row_n, "left")
            ranks_n[:] = (below_n + 1 + np.searchsorted(sorted_n, row_n, "right")) / 2
        return found_Pn

    return scopes.by_member(compared_V, of_rows)


def quantile(scopes: Scopes, x_V: Floats, weight_V: Floats | None, share: float) -> Floats:
    """Return the value that a share of those which weigh anything is below, between two of them if
    need be, as :func:`numpy.quantile` does; the value itself where nothing weighs anything."""
    compared_V = x_V if weight_V is None else np.where(weight_V > 0, x_V, np.nan)

    def of_rows(rows_Pn: Floats) -> Floats:
        found_P = [
            np.quantile(one, share) if len(one) else np.nan
            for one in (row_n[~np.isnan(row_n)] for row_n in rows_Pn)
        ]
        return np.repeat(np.array(found_P)[:, None], rows_Pn.shape[1], axis=1)

    found_V = scopes.by_member(compared_V, of_rows)
    return np.where(np.isnan(found_V), x_V, found_V)
