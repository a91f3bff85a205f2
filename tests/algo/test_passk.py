"""pass@k equals the share of all draws of k samples that hold a correct one."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, pass_at_k


@given(st.integers(1, 9), st.data())
def test_pass_at_k_counts_all_draws(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == sum(map(any, draws)) / len(draws)


@given(st.integers(1, 300), st.data())
def test_its_ends_are_the_mean_and_any(n: int, data: st.DataObject) -> None:
    c = data.draw(st.integers(0, n))
    assert pass_at_k(n, c, 1) == c / n
    assert pass_at_k(n, c, n) == (1.0 if c else 0.0)


def test_large_counts_stay_exact() -> None:
    assert pass_at_k(100_000, 1, 50_000) == 0.5
    assert pass_at_k(10_000, 9_999, 2) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(4, 5, 1), (4, -1, 1), (0, 0, 1), (4, 2, 0), (4, 2, 5)])
def test_impossible_counts_are_refused(n: int, c: int, k: int) -> None:
    with pytest.raises(AlgorithmError):
        pass_at_k(n, c, k)
