"""Moving averages of returns as a baseline."""

from __future__ import annotations

from itertools import permutations
from statistics import fmean

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Episodes, renewed
from rlc.algo.scheme import AdvantageScheme, Returns, RunningBaseline

SCHEME = AdvantageScheme("rae", Returns("episode", 1.0), (RunningBaseline(0.5),), "keep")


def test_a_number_worked_out_by_hand() -> None:
    # d = 0.5, two returns: 0.25 * 4 + 0.75 * (1 + 3) / 2
    assert renewed(4.0, [1.0, 3.0], 0.5) == 2.5
    assert renewed(0.0, [1.0], 0.95) == pytest.approx(0.05)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5), st.floats(-1, 1), st.floats(0, 0.99))
def test_it_is_what_the_paper_has_on_average_over_all_orders(
    values: list[float], average: float, decay: float
) -> None:
    def one_by_one(order: tuple[float, ...]) -> float:
        found = average
        for value in order:
            found = decay * found + (1 - decay) * value
        return found

    expected = fmean(one_by_one(order) for order in permutations(values))
    assert renewed(average, values, decay) == pytest.approx(expected, abs=1e-12)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=20), st.randoms(use_true_random=False))
def test_the_order_of_a_batch_changes_no_bit(values: list[float], shuffler: object) -> None:
    shuffled = list(values)
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]
    assert renewed(0.3, values, 0.95) == renewed(0.3, shuffled, 0.95)


def test_the_average_is_taken_off_each_return_of_its_rollout() -> None:
    episodes = Episodes.from_rollouts(
        rewards_RT=[[1.0], [0.0, 3.0], [-1.0]],
        tokens_RT=[[4], [4, 4], [4]],
        group_R=[1, 0, 1],
        env_R=[0, 0, 0],
    )
    first = compute_advantages(SCHEME, episodes)
    assert first.advantages_N.tolist() == [1.0, 3.0, 3.0, -1.0]  # before the first step it is 0
    later = evolve(episodes, running_R=np.array([0.5, 1.0, 0.5]))
    assert compute_advantages(SCHEME, later).advantages_N.tolist() == [0.5, 2.0, 2.0, -1.5]
    by_turn = evolve(SCHEME, returns=Returns("turn", 1.0))
    assert compute_advantages(by_turn, later).advantages_N.tolist() == [0.5, 2.0, 2.0, -1.5]
