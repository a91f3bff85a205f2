"""How far the trainer is from the sampler: on the tokens that were sampled only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import AlgorithmError, ClipRange, clip_fraction, drift


def test_the_estimators_on_a_worked_example() -> None:
    found = drift([[-1.0, -9.0], [-2.0]], [[-1.5, 0.0], [-1.0]], [[1, 0], [1]])
    assert found is not None
    assert found.tokens == 2
    low, high = np.exp(-0.5), np.exp(1.0)
    assert found.k1 == pytest.approx((0.5 - 1.0) / 2)
    assert found.k2 == pytest.approx((0.5**2 + 1.0**2) / 4)
    assert found.k3 == pytest.approx((low - 0.5 + high - 2.0) / 2)
    assert found.reverse == pytest.approx((-0.5 * low - low + 1 + high - high + 1) / 2)
    assert found.ess == pytest.approx((low + high) ** 2 / (2 * (low**2 + high**2)))


@given(st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), min_size=1, max_size=9))
def test_divergences_are_never_negative_and_equal_policies_have_none(
    pairs: list[tuple[float, float]],
) -> None:
    sampler, trainer = (list(side) for side in zip(*pairs, strict=True))
    found = drift([sampler], [trainer], [[1] * len(pairs)])
    same = drift([sampler], [sampler], [[1] * len(pairs)])
    assert found is not None
    assert same is not None
    assert found.k2 >= 0
    assert found.k3 >= -1e-15
    assert found.reverse >= -1e-12
    assert 1 / len(pairs) - 1e-12 <= found.ess <= 1 + 1e-12
    assert (same.k1, same.k2, same.k3, same.reverse, same.ess) == (0, 0, 0, 0, 1)


def test_the_exact_expectations_are_the_divergences() -> None:
    """Every token of a three-token vocabulary, as often as the sampler draws it."""
    counts, p = np.array([5, 3, 2]), np.array([0.2, 0.3, 0.5])
    q = counts / counts.sum()
    drawn = np.repeat(np.arange(3), counts)
    found = drift([np.log(q)[drawn]], [np.log(p)[drawn]], [np.ones(10)])
    assert found is not None
    forward = float((q * np.log(q / p)).sum())
    assert found.k1 == pytest.approx(forward)
    assert found.k3 == pytest.approx(forward)
    assert found.reverse == pytest.approx(float((p * np.log(p / q)).sum()))


def test_the_sample_size_does_not_overflow() -> None:
    found = drift([[-700.0, -1.0, -1.0]], [[0.0, -1.0, -1.0]], [[1, 1, 1]])
    assert found is not None
    assert found.ess == pytest.approx(1 / 3)


def test_without_sampled_tokens_nothing_is_known() -> None:
    clip = ClipRange(0.8, 1.2, "gradient")
    assert drift([], [], []) is None
    assert drift([[-1.0]], [[-2.0]], [[0]]) is None
    assert clip_fraction(clip, [[-1.0]], [[-2.0]], [[1.0]], [[0]]) is None


def test_what_stands_beside_the_sampled_tokens_is_not_read() -> None:
    inf = float("inf")
    found = drift([[-inf, -1.0]], [[-inf, -1.5]], [[0, 1]])
    assert found is not None
    assert (found.k1, found.tokens) == (0.5, 1)


def test_rows_that_do_not_match_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="do not match"):
        drift([[-1.0]], [], [[1]])
    with pytest.raises(AlgorithmError, match="datum 0"):
        drift([[-1.0]], [[-1.0, -2.0]], [[1]])


def test_a_gradient_is_clipped_where_the_advantage_pulls_further_out() -> None:
    ratios = np.array([1.5, 1.5, 0.5, 0.5, 1.0, 9.0])
    advantages = np.array([1.0, -1.0, 1.0, -1.0, 1.0, 1.0])
    rows = ([np.zeros(6)], [np.log(ratios)], [advantages], [[1, 1, 1, 1, 1, 0]])
    assert clip_fraction(ClipRange(0.8, 1.2, "gradient"), *rows) == 2 / 5
    assert clip_fraction(ClipRange(0.8, 1.2, "weight"), *rows) == 4 / 5


def test_a_sequence_is_clipped_as_one() -> None:
    """The first sequence's ratio is 1 although its tokens' are not; the second's is not."""
    trainer = [np.log([2.0, 0.5]), np.log([1.5, 1.5])]
    rows = ([np.zeros(2)] * 2, trainer, [np.ones(2)] * 2, [np.ones(2)] * 2)
    assert clip_fraction(ClipRange(0.9, 1.1, "gradient", per_sequence=True), *rows) == 1 / 2
    assert clip_fraction(ClipRange(0.9, 1.1, "gradient"), *rows) == 3 / 4


NUMBERS = st.floats(-2, 2, allow_subnormal=False)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_the_clipped_share_is_where_the_clipped_loss_is_larger(
    tokens: list[tuple[float, float]],
) -> None:
    """The definition of verl 0.9.1: the share of tokens with ``-clip(ρ) A > -ρ A``."""
    gap, advantage = (np.array(side) for side in zip(*tokens, strict=True))
    ratio = np.exp(gap)
    expected = float(np.mean(-np.clip(ratio, 0.8, 1.2) * advantage > -ratio * advantage))
    ones = np.ones(len(gap))
    clip = ClipRange(0.8, 1.2, "gradient")
    assert clip_fraction(clip, [0 * gap], [gap], [advantage], [ones]) == pytest.approx(expected)
