"""Reward reduction, which credits turns, and pass@k: the share of draws with a correct sample."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.errors import AlgorithmError
from rlc.algo.rewards import REDUCTIONS, pass_at_k, reduce_rewards, reward_shape

rewards = st.lists(st.floats(-100, 100), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [
        ("sum", (0, 0, 3.5)),
        ("mean", (0, 0, 3.5 / 3)),
        ("max", (0, 0, 4)),
        ("min", (0, 0, -1.5)),
        ("last", (0, 0, -1.5)),
        ("turns", (1, 4, -1.5)),
    ],
)
def test_a_reduction_stands_on_the_last_turn(reduce: str, expected: tuple[float, ...]) -> None:
    assert reduce_rewards([1.0, 4.0, -1.5], reduce) == expected


@pytest.mark.parametrize(
    ("reduce", "expected"),
    [("sum", -5.0), ("mean", -5 / 3), ("max", 2.0), ("min", -8.0), ("last", -8.0)],
)
def test_an_unfinished_episode_has_one_more_reward(reduce: str, expected: float) -> None:
    assert reduce_rewards([1.0, 2.0], reduce, nonterminal=-8.0, ended=False) == (0, expected)
    finished = reduce_rewards([1.0, 2.0], reduce, nonterminal=-8.0, ended=True)
    assert finished == reduce_rewards([1.0, 2.0], reduce)


def test_turns_get_the_nonterminal_reward_on_the_last() -> None:
    assert reduce_rewards([1.0, 2.0], "turns", nonterminal=-0.5, ended=False) == (1.0, 1.5)


def test_the_result_is_limited_not_what_it_is_made_of() -> None:
    assert reduce_rewards([9.0, -8.0], "sum", low=-1, high=3) == (0, 1.0)
    assert reduce_rewards([9.0], "sum", high=3) == (3.0,)
    assert reduce_rewards([-9.0], "mean", low=-1) == (-1.0,)
    assert reduce_rewards([9.0, -8.0], "turns", low=-1, high=3) == (3.0, -1.0)


def test_turns_without_a_reward_take_no_part() -> None:
    assert reduce_rewards([None, 2.0, None, 4.0, None], "mean") == (0, 0, 0, 0, 3.0)
    assert reduce_rewards([2.0, None], "last") == (0, 2.0)
    assert reduce_rewards([None, 2.0], "turns") == (0.0, 2.0)
    assert reduce_rewards([None], "sum", nonterminal=0.0, ended=False) == (0.0,)


def test_without_any_reward_nothing_is_known() -> None:
    assert reduce_rewards([None, None], "sum") is None
    assert reduce_rewards([], "sum") is None
    assert reduce_rewards([], "sum", nonterminal=1.0, ended=False) is None


@given(rewards, st.sampled_from([r for r in REDUCTIONS if r != "turns"]))
def test_the_sum_over_turns_is_the_reduced_reward(values: list[float], reduce: str) -> None:
    credit = reduce_rewards(values, reduce)
    assert credit is not None
    assert len(credit) == len(values)
    assert sum(credit) == credit[-1]
    assert min(values) - 1e-9 <= credit[-1] <= max(values) + 1e-9 or reduce == "sum"


@given(rewards)
def test_a_sum_does_not_depend_on_the_order(values: list[float]) -> None:
    one, other = reduce_rewards(values, "sum"), reduce_rewards(values[::-1], "sum")
    assert one is not None
    assert other is not None
    assert one[-1] == other[-1]


def test_another_reduction_is_refused() -> None:
    with pytest.raises(AlgorithmError, match="no reward reduction 'median'; known are turns, sum"):
        reduce_rewards([1.0], "median")


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


LENGTHS = {"tokens": (1.0, 128.0, 256.0, 512.0)}


@pytest.mark.parametrize(
    ("formula", "constant", "falls", "free", "dominant"),
    [
        ("right + 0.1 * brief", False, False, False, None),
        ("right - 0.001 * tokens", False, False, False, None),
        ("0 * right + 1", True, False, False, None),
        ("right - right", True, False, False, None),
        ("1 - right", False, True, True, None),
        ("-right - 0.1 * brief", False, True, True, None),
        ("abs(right - 1)", False, True, True, None),
        ("right - brief", False, False, False, None),  # a penalty may be taken off
        ("0.01 * tokens", False, False, True, None),
        ("1 if tokens < 64 else right", False, False, True, None),
        ("right + 1_000 * brief", False, False, False, "brief"),
        ("right - 10 * tokens", False, False, False, "tokens"),
        ("max(right, brief)", False, False, False, None),
    ],
)
def test_what_a_reward_pays_for(
    formula: str, constant: bool, falls: bool, free: bool, dominant: str | None
) -> None:
    shape = reward_shape(
        lambda inputs: float(eval(formula, dict(inputs))), ["right", "brief"], LENGTHS
    )
    assert (shape.constant, shape.falls, shape.free) == (constant, falls, free)
    assert (shape.dominant and shape.dominant[0]) == dominant


@given(st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1e-4))
def test_a_sum_of_what_is_earned_less_a_little_for_length_is_sound(
    right: float, brief: float, length: float
) -> None:
    def reward(inputs: Mapping[str, float]) -> float:
        return right * inputs["right"] + brief * inputs["brief"] - length * inputs["tokens"]

    shape = reward_shape(reward, ["right", "brief"], LENGTHS)
    assert (shape.constant, shape.falls, shape.free) == (False, False, False)
