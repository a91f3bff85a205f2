"""Sampler-trainer KL: the three estimators, on action tokens only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.errors import AlgorithmError
from rlc.algo.kl import sample_train_kl


def test_the_estimators_on_a_worked_example() -> None:
    kl = sample_train_kl([[-1.0, -9.0], [-2.0]], [[-1.5, 0.0], [-1.0]], [[1, 0], [1]])
    assert kl is not None
    assert kl.tokens == 2
    assert kl.k1 == pytest.approx((0.5 - 1.0) / 2)
    assert kl.k2 == pytest.approx((0.5**2 + 1.0**2) / 4)
    assert kl.k3 == pytest.approx((np.exp(-0.5) - 0.5 + np.exp(1.0) - 2.0) / 2)


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), min_size=1, max_size=9))
def test_k2_and_k3_are_never_negative_and_equal_policies_have_none(
    pairs: list[tuple[float, float]],
) -> None:
    sampler, trainer = (list(side) for side in zip(*pairs, strict=True))
    kl = sample_train_kl([sampler], [trainer], [[1] * len(pairs)])
    same = sample_train_kl([sampler], [sampler], [[1] * len(pairs)])
    assert kl is not None
    assert same is not None
    assert kl.k2 >= 0
    assert kl.k3 >= -1e-15
    assert (same.k1, same.k2, same.k3) == (0, 0, 0)


def test_the_exact_expectation_of_k1_and_k3_is_the_divergence() -> None:
    """Every token of a three-token vocabulary, as often as the sampler draws it."""
    counts, other = np.array([5, 3, 2]), np.array([0.2, 0.3, 0.5])
    q = counts / counts.sum()
    drawn = np.repeat(np.arange(3), counts)
    kl = sample_train_kl([np.log(q)[drawn]], [np.log(other)[drawn]], [np.ones(10)])
    assert kl is not None
    truth = float((q * np.log(q / other)).sum())
    assert kl.k1 == pytest.approx(truth)
    assert kl.k3 == pytest.approx(truth)


def test_without_action_tokens_nothing_is_known() -> None:
    assert sample_train_kl([], [], []) is None
    assert sample_train_kl([[-1.0]], [[-2.0]], [[0]]) is None


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="do not match"):
        sample_train_kl([[-1.0]], [], [[1]])
    with pytest.raises(AlgorithmError, match="datum 0"):
        sample_train_kl([[-1.0]], [[-1.0, -2.0]], [[1]])
