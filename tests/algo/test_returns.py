"""Returns: sums of rewards, discounted rewards-to-go, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo import (
    AlgorithmError,
    Episodes,
    Floats,
    Returns,
    compute_advantages,
    scheme_of_returns,
)

rewards = st.floats(-100, 100, allow_subnormal=False)
rollouts = st.lists(st.lists(rewards, min_size=1, max_size=6), max_size=8)


def returns_of(returns: Returns, rewards_RT: Sequence[Sequence[float]]) -> list[Floats]:
    """The returns of each rollout: one value, or one a turn."""
    labels, tokens = [0] * len(rewards_RT), [[1] * len(rewards) for rewards in rewards_RT]
    episodes = Episodes.from_rollouts(rewards_RT, tokens, labels, labels)
    rows = compute_advantages(scheme_of_returns("returns", returns), episodes).by_rollout()
    return rows if returns.unit == "turn" else [row[:1] for row in rows]


def test_an_episode_is_worth_the_sum_of_its_rewards() -> None:
    returns = returns_of(Returns("episode", 1.0), [[0.0, 0.5, 1.0], [2.0]])
    assert [row.tolist() for row in returns] == [[1.5], [2.0]]


def test_a_turn_is_worth_its_reward_and_the_discounted_rest() -> None:
    returns = returns_of(Returns("turn", 0.5), [[1.0, 0.0, 4.0], [2.0]])
    assert [row.tolist() for row in returns] == [[2.0, 2.0, 4.0], [2.0]]


@given(rollouts, st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_returns_follow_their_recursion(rewards_RT: list[list[float]], gamma: float) -> None:
    returns = returns_of(Returns("turn", gamma), rewards_RT)
    assert [len(row) for row in returns] == [len(row) for row in rewards_RT]
    for rewards_T, returns_T in zip(rewards_RT, returns, strict=True):
        to_go = Fraction(0)
        for reward, value in reversed(list(zip(rewards_T, returns_T, strict=True))):
            to_go = Fraction(reward) + Fraction(gamma) * to_go
            assert value == pytest.approx(float(to_go), rel=1e-12, abs=1e-12)


@given(rollouts, st.sampled_from([0.5, 1.0]))
def test_an_episodes_return_is_that_of_its_first_turn(
    rewards_RT: list[list[float]], gamma: float
) -> None:
    episodes = returns_of(Returns("episode", gamma), rewards_RT)
    turns = returns_of(Returns("turn", gamma), rewards_RT)
    assert [row.tolist() for row in episodes] == [row[:1].tolist() for row in turns]


def test_equal_worth_is_equal_however_it_is_spread_over_turns() -> None:
    returns = returns_of(
        Returns("episode", 1.0), [[0.1] * 10, [1.0], [0.3, 0.2, 0.1, 0.4], [0.4, 0.1, 0.2, 0.3]]
    )
    assert len({float(row[0]) for row in returns}) == 1


def test_an_empty_batch_has_no_returns() -> None:
    assert returns_of(Returns("turn", 0.9), []) == []


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_reward_that_is_not_finite_is_refused_with_its_place(bad: float) -> None:
    with pytest.raises(AlgorithmError, match=r"reward of rollout 1, turn 2 is"):
        returns_of(Returns("episode", 1.0), [[1.0], [0.0, 0.0, bad]])


def test_a_rollout_without_turns_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="rollout 1 has no turn"):
        returns_of(Returns("episode", 1.0), [[1.0], []])
