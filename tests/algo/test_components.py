"""Advantages of reward components, each normalised by itself (GDPO): against the numbers of verl
and TRL, which ``tests/algo/data/make_gdpo_vectors.py`` made, and worked out by hand; and moving
averages of returns as a baseline (RAE)."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from itertools import permutations
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from algo_schemes import mean, scheme, std
from attrs import evolve
from dialect_batches import scheme_of
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Advantages, Episodes, renewed
from rlc.algo.scheme import AdvantageScheme, Baseline, RunningBaseline, WeightedSum

Rewards = Sequence[Mapping[str, float]]  # by component, of each rollout
RECORDED = json.loads((ROOT / "tests/algo/data/gdpo_vectors.json").read_text(encoding="utf-8"))
SUM = WeightedSum()
GDPO = scheme(mean(), std(), SUM, mean("batch"), std("batch"))


def advantages(
    spec: AdvantageScheme,
    rewards_R: Rewards,
    weights: Mapping[str, float],
    group_R: Sequence[int],
    tokens_R: Sequence[int] | None = None,
) -> Advantages:
    """The advantages of rollouts of one turn."""
    totals = [[sum(weights[name] * x for name, x in row.items())] for row in rewards_R]
    parts = [{name: (weights[name], [x]) for name, x in row.items()} for row in rewards_R]
    tokens = [[n] for n in tokens_R or [1] * len(totals)]
    labels = [0] * len(totals)
    return compute_advantages(
        spec, Episodes.from_rollouts(totals, tokens, group_R, labels, parts_R=parts)
    )


def values(*args: Any, **more: Any) -> npt.NDArray[np.float64]:
    return advantages(*args, **more).advantages_N


@pytest.mark.parametrize("text", RECORDED[0]["advantages"])
@pytest.mark.parametrize("batch", RECORDED, ids=range(len(RECORDED)))
def test_the_numbers_are_the_librarys(text: str, batch: dict[str, Any]) -> None:
    """verl computes in float32; where all rewards of a group are equal it may be one bit off 0."""
    group_R = [at // batch["size"] for at in range(len(batch["rewards"]))]
    found = values(scheme_of(text), batch["rewards"], batch["weights"], group_R, batch["tokens"])
    np.testing.assert_allclose(found, batch["advantages"][text], atol=3e-6)


def test_a_component_counts_by_its_weight_and_not_by_its_spread() -> None:
    """One is a hundred times as wide as the other, and as important."""
    rewards = [{"right": 0.0, "long": 100.0}, {"right": 1.0, "long": 0.0}]
    apart = scheme(mean(), std(), SUM)
    assert values(apart, rewards, {"right": 1.0, "long": 1.0}, [0, 0]).tolist() == [0, 0]
    halves = 0.5**0.5
    found = values(apart, rewards, {"right": 3.0, "long": 1.0}, [0, 0])
    np.testing.assert_allclose(found, [-2 * halves, 2 * halves], rtol=1e-12)
    whole = values(scheme(mean(), std()), rewards, {"right": 1.0, "long": 1.0}, [0, 0])
    np.testing.assert_allclose(whole, [halves, -halves], rtol=1e-12)


def test_equal_totals_are_not_equal_rollouts() -> None:
    """Their components differ, so that there is something to learn where weights say so."""
    rewards = [{"a": 1.0, "b": 0.0}, {"a": 0.0, "b": 1.0}, {"a": 0.0, "b": 0.0}]
    drop = scheme(mean(), std(), SUM, constant="drop")
    found = advantages(drop, rewards * 2, {"a": 1.0, "b": 1.0}, [0, 0, 0, 1, 1, 1])
    assert found.kept_R.all()
    same = [{"a": 1.0, "b": 0.5}] * 3
    found = advantages(drop, [*rewards, *same], {"a": 1.0, "b": 1.0}, [0, 0, 0, 1, 1, 1])
    assert found.kept_R.tolist() == [True] * 3 + [False] * 3
    assert found.advantages_N[3:].tolist() == [0, 0, 0]


def test_a_rollout_is_compared_in_the_components_that_it_has() -> None:
    """Two environments of a mixture: the second has no `style`."""
    rewards = [{"right": 0.0, "style": 1.0}, {"right": 1.0, "style": 1.0}, {"right": 0.0}]
    rewards.append({"right": 1.0})
    found = values(scheme(mean(), SUM), rewards, {"right": 2.0, "style": 5.0}, [0, 0, 1, 1])
    assert found.tolist() == [-1, 1, -1, 1]


def test_steps_after_the_sum_see_what_was_kept() -> None:
    spec = scheme(Baseline("mean", "group", "value", "drop"), SUM, mean("batch"))
    rewards = [{"a": 0.0}, {"a": 4.0}, {"a": 9.0}]
    found = advantages(spec, rewards, {"a": 1.0}, [0, 0, 1])
    assert found.kept_R.tolist() == [True, True, False]
    assert found.advantages_N.tolist() == [-2, 2, 0]


def test_each_turn_has_its_components() -> None:
    episodes = Episodes.from_rollouts(
        [[1.0, 2.0], [3.0]],
        [[1, 1], [1]],
        [0, 0],
        [0, 0],
        parts_R=[{"a": (1.0, [1.0, 0.0]), "b": (2.0, [0.0, 1.0])}, {"a": (1.0, [3.0])}],
    )
    found = compute_advantages(scheme(SUM, unit="turn", gamma=0.5), episodes)
    assert found.advantages_N.tolist() == [1 + 2 * 0.5, 2, 3]


eighths = st.integers(-16, 16).map(lambda n: n / 8)


@given(st.lists(st.tuples(eighths, eighths, eighths), min_size=2, max_size=12), st.data())
def test_the_order_and_the_names_of_components_change_no_bit(
    rows: list[tuple[float, float, float]], data: st.DataObject
) -> None:
    weights = {"a": 1.0, "b": 0.25, "c": 3.0}
    rewards = [dict(zip(weights, row, strict=True)) for row in rows]
    group_R = [at % 2 for at in range(len(rows))]
    straight = values(GDPO, rewards, weights, group_R)
    shuffler = random.Random(data.draw(st.integers(0, 99)))
    order = shuffler.sample(range(len(rows)), len(rows))
    backwards = [dict(reversed(rewards[at].items())) for at in order]
    shuffled = values(GDPO, backwards, weights, [group_R[at] for at in order])
    assert shuffled.tobytes() == straight[order].tobytes()


@given(st.lists(eighths, min_size=1, max_size=12))
def test_one_component_is_the_reward_itself(rewards: list[float]) -> None:
    """Whether it is called a component or not."""
    rows, group_R = [{"a": reward} for reward in rewards], [at % 3 for at in range(len(rewards))]
    labels = [0] * len(rewards)
    bare = Episodes.from_rollouts([[r] for r in rewards], [[1]] * len(rewards), group_R, labels)
    found = values(GDPO, rows, {"a": 1.0}, group_R)
    assert found.tobytes() == compute_advantages(GDPO, bare).advantages_N.tobytes()


RAE = scheme(RunningBaseline(0.5))


def test_a_moving_average_worked_out_by_hand() -> None:
    # d = 0.5, two returns: 0.25 * 4 + 0.75 * (1 + 3) / 2
    assert renewed(4.0, [1.0, 3.0], 0.5) == 2.5
    assert renewed(0.0, [1.0], 0.95) == pytest.approx(0.05)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5), st.floats(-1, 1), st.floats(0, 0.99))
def test_a_moving_average_is_what_the_paper_has_on_average_over_all_orders(
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
    first = compute_advantages(RAE, episodes)
    assert first.advantages_N.tolist() == [1.0, 3.0, 3.0, -1.0]  # before the first step it is 0
    (average,) = first.observed
    assert first.observed[average].tolist() == [1.0, 3.0, -1.0]
    later = evolve(episodes, running={average: np.array([0.5, 1.0, 0.5])})
    assert compute_advantages(RAE, later).advantages_N.tolist() == [0.5, 2.0, 2.0, -1.5]
    by_turn = scheme(RunningBaseline(0.5), unit="turn")
    (average,) = compute_advantages(by_turn, episodes).observed
    later = evolve(episodes, running={average: np.array([0.5, 1.0, 0.5])})
    assert compute_advantages(by_turn, later).advantages_N.tolist() == [0.5, 2.0, 2.0, -1.5]
