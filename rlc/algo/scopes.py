"""Statistics of the values that share a label, independent of the order they come in."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlc.algo.ragged import Bools, Floats, Ints


class Scopes:
    """A partition of V values into S scopes by integer label.

    Scopes of one size form a matrix, one row a scope, so each statistic is a few array
    operations. Addends are sorted within their row before they are added: floating-point sums
    depend on the order of the addends, and an advantage must not depend on the batch's.
    """

    def __init__(self, label_V: Ints) -> None:
        order_V = np.argsort(label_V, kind="stable")
        sorted_V = label_V[order_V]
        first_V = np.ones(len(label_V), dtype=bool)
        first_V[1:] = sorted_V[1:] != sorted_V[:-1]
        starts_S = np.flatnonzero(first_V)
        self.label_S: Ints = sorted_V[starts_S]
        self.size_S: Ints = np.diff(starts_S, append=len(label_V))
        self.scope_V: Ints = np.empty(len(label_V), dtype=np.int64)
        self.scope_V[order_V] = np.cumsum(first_V) - 1
        self._rows = [
            (scopes_P, order_V[starts_S[scopes_P, None] + np.arange(size)])
            for size, scopes_P in _by_size(self.size_S)
        ]

    def total(self, x_V: Floats) -> Floats:
        """The sum of each scope, shape (S,), bitwise the same in any order of the values."""
        out_S = np.empty(len(self.size_S))
        for scopes_P, member_Pn in self._rows:
            out_S[scopes_P] = np.sort(x_V[member_Pn], axis=1).sum(axis=1)
        return out_S

    def largest(self, x_V: Floats) -> Floats:
        """The largest value of each scope, shape (S,)."""
        out_S = np.empty(len(self.size_S))
        for scopes_P, member_Pn in self._rows:
            out_S[scopes_P] = x_V[member_Pn].max(axis=1)
        return out_S

    def constant(self, x_V: Floats, weight_V: Floats) -> Bools:
        """Which scopes' values are all equal, shape (S,); values of weight 0 do not count."""
        counts_V = weight_V > 0
        high_S = self.largest(np.where(counts_V, x_V, -np.inf))
        low_S = -self.largest(np.where(counts_V, -x_V, -np.inf))
        return high_S <= low_S


def _by_size(size_S: Ints) -> Iterator[tuple[int, Ints]]:
    """Each size that occurs, with the scopes that have it."""
    by_size_S = np.argsort(size_S, kind="stable")
    sizes_D, count_D = np.unique(size_S, return_counts=True)
    ends_D = np.cumsum(count_D)
    for size, start, end in zip(sizes_D, ends_D - count_D, ends_D, strict=True):
        yield int(size), by_size_S[start:end]
