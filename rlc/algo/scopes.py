"""Statistics of the values that share a label, independent of the order they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rlc.algo.ragged import Bools, Floats, Ints
from rlc.records import frozen

T = TypeVar("T", bound=np.generic)

_DIGIT = 16  # bits of a label that are sorted at once, in linear time


def stable_order(label_V: Ints) -> Ints | None:
    """The order that sorts integer labels, ties as they come; None if they are sorted already.

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
        """Which scopes' values are all equal, shape (S,)."""
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

    def total(self, x_V: Floats) -> Floats:
        """The sum of each scope, shape (S,), bitwise the same in any order of the values."""
        return self._reduced(x_V, lambda rows_Pn: np.sort(rows_Pn, axis=1).sum(axis=1))

    def summary(self, x_V: Floats, weight_V: Floats | None = None) -> ScopeSummary:
        """Weights, mean and range of each scope; without weights each value counts once.

        Weights are whole numbers, whose sums are exact in any order.
        """
        if weight_V is None:
            weight_S = self.size_S.astype(np.float64)
            total_S, low_S, high_S = self._sorted_sums(x_V)
        else:
            weight_S = self._reduced(weight_V, _sum)
            total_S = self.total(weight_V * x_V)
            low_V = high_V = x_V
            if not (weight_V > 0).all():
                low_V = np.where(weight_V > 0, x_V, np.inf)
                high_V = np.where(weight_V > 0, x_V, -np.inf)
            low_S, high_S = self._reduced(low_V, _smallest), self._reduced(high_V, _largest)
        return ScopeSummary(weight_S, total_S / weight_S, low_S, high_S)

    def best_of_others(self, x_V: Floats) -> Floats:
        """For each value the largest of the others in its scope; -inf if there are no others."""
        best_S, second_S = self._reduced(x_V, _largest), self._reduced(x_V, _second)
        best_V = self.spread(best_S)
        return np.where(x_V == best_V, self.spread(second_S), best_V)

    def _sorted_sums(self, x_V: Floats) -> tuple[Floats, Floats, Floats]:
        """Sum, smallest and largest value of each scope, from one sort."""
        total_S, low_S, high_S = (np.empty(len(self.size_S)) for _ in range(3))
        for scopes_P, members_Pn in self._members:
            sorted_Pn = np.sort(self._rows(x_V, members_Pn), axis=1)
            total_S[scopes_P] = sorted_Pn.sum(axis=1)
            low_S[scopes_P], high_S[scopes_P] = sorted_Pn[:, 0], sorted_Pn[:, -1]
        return total_S, low_S, high_S

    def _reduced(self, x_V: Floats, reduce: Callable[[Floats], npt.ArrayLike]) -> Floats:
        out_S = np.empty(len(self.size_S))
        for scopes_P, members_Pn in self._members:
            out_S[scopes_P] = reduce(self._rows(x_V, members_Pn))
        return out_S

    def _rows(self, x_V: Floats, members_Pn: Ints | tuple[int, int]) -> Floats:
        return x_V.reshape(members_Pn) if isinstance(members_Pn, tuple) else x_V[members_Pn]

    def _members_by_size(
        self, starts_S: Ints
    ) -> Iterator[tuple[Ints | slice, Ints | tuple[int, int]]]:
        """Each size that occurs: the scopes that have it, and where their values are; a shape
        where the values themselves are the matrix."""
        sizes_D = np.unique(self.size_S)
        if self._order_V is None and len(sizes_D) == 1:
            yield slice(None), (len(starts_S), int(sizes_D[0]))
            return
        for size in sizes_D.tolist():
            scopes_P = np.flatnonzero(self.size_S == size)
            at_Pn = starts_S[scopes_P, None] + np.arange(size)
            yield scopes_P, at_Pn if self._order_V is None else self._order_V[at_Pn]


_sum = partial(np.sum, axis=1)
_smallest = partial(np.min, axis=1)
_largest = partial(np.max, axis=1)


def _second(rows_Pn: Floats) -> Floats | float:
    return np.sort(rows_Pn, axis=1)[:, -2] if rows_Pn.shape[1] > 1 else -np.inf
