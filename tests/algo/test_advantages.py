"""Advantages on worked examples: published values, constants, singletons, scopes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from algo_schemes import (
    CENTER,
    MAXRL,
    OPO,
    REINFORCE,
    REINFORCE_PP_BASELINE,
    RLOO,
    Singleton,
    advantages_of,
    by_mean,
    grpo,
    leave_one_out,
    length_weighted,
    mean,
    rebn,
    scheme,
    single_turn,
    std,
)

from rlc.algo.advantages import Episodes, compute_advantages
from rlc.algo.errors import AlgorithmError
from rlc.algo.scheme import AdvantageScheme, Baseline, Clip, Scale, Scope

VERL_REWARDS = [[1.0, 0.0, 0.0, 1.0], [0.5], [2.0, 2.0]]
CENTERED = [0.5, -0.5, -0.5, 0.5]

# Observed with verl 0.9.1 on VERL_REWARDS, three action tokens a rollout.
VERL = {
    "grpo": (
        scheme(mean(singleton="raw"), std(eps=1e-6)),
        [0.866024, -0.866024, -0.866024, 0.866024, 0.5, 0, 0],
    ),
    "grpo without norm": (scheme(mean(singleton="raw")), [*CENTERED, 0.5, 0, 0]),
    "rloo": (
        scheme(leave_one_out("raw")),
        [0.666667, -0.666667, -0.666667, 0.666667, 0.5, 0, 0],
    ),
    "rloo_vectorized": (
        scheme(leave_one_out("zero")),
        [0.666667, -0.666667, -0.666667, 0.666667, 0, 0, 0],
    ),
    "opo": (scheme(length_weighted("raw")), [*CENTERED, 0.5, 0, 0]),
    "reinforce_plus_plus_baseline": (
        REINFORCE_PP_BASELINE,
        [1.004193, -1.338924, -1.338924, 1.004193, 1.004193, -0.167365, -0.167365],
    ),
}


@pytest.mark.parametrize("name", VERL)
def test_values_observed_with_verl(name: str) -> None:
    spec, expected = VERL[name]
    np.testing.assert_allclose(advantages_of(spec, VERL_REWARDS), expected, atol=6e-7)


def test_a_raw_singleton_passes_a_scale_over_its_own_scope() -> None:
    normed = advantages_of(scheme(mean(singleton="raw"), std(eps=1e-6)), [[0.5]])
    assert normed.tolist() == [0.5 / (1 + 1e-6)]
    maxrl = scheme(mean(singleton="raw"), by_mean(eps=1e-6))
    assert advantages_of(maxrl, [[0.5], [-2.0]]).tolist() == [0.5, -2.0]


def test_centring_agrees_with_the_tinker_cookbook() -> None:
    pytest.importorskip("tinker_cookbook")
    from tinker_cookbook.rl.data_processing import compute_advantages as cookbook_advantages
    from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup

    groups = [[1.0, 0.0, 0.25, 1.0], [0.5], [2.0, 2.0], [-1.0, 3.0, 0.125]]
    theirs = cookbook_advantages(
        [
            TrajectoryGroup([Trajectory([], None) for _ in group], list(group), [{} for _ in group])
            for group in groups
        ]
    )
    ours = advantages_of(CENTER, groups)
    np.testing.assert_allclose(ours, np.concatenate(theirs), atol=1e-6)


# Constants


CONSTANT_GROUPS = [[0.1] * 3, [0.1] * 10, [0.3] * 6, [1e-300] * 7, [1e300 / 3] * 5, [0.0] * 2]
WITH_GROUP_BASELINE = {
    "center": CENTER,
    "rloo": RLOO,
    "opo": OPO,
    "maxrl": MAXRL,
    "grpo ddof 0": grpo(0),
    "grpo ddof 1": grpo(1),
    "grpo eps": grpo(1, 1e-9),
    "std alone": scheme(std()),
    "rebn": rebn(),
}


@pytest.mark.parametrize("name", WITH_GROUP_BASELINE)
@pytest.mark.parametrize("group", CONSTANT_GROUPS, ids=lambda group: f"{group[0]:.3g}x{len(group)}")
def test_a_constant_group_gives_exact_zeros(name: str, group: list[float]) -> None:
    tokens = [[7 * i + 1 for i in range(len(group))]]
    advantages = advantages_of(WITH_GROUP_BASELINE[name], [group], tokens)
    assert advantages.tolist() == [0.0] * len(group)


def test_constant_groups_can_be_dropped() -> None:
    groups = [[1.0, 0.0], [0.1, 0.1, 0.1], [0.5]]
    result = compute_advantages(scheme(mean(), constant="drop"), single_turn(groups))
    assert result.kept_R.tolist() == [True, True, False, False, False, True]
    assert result.advantages_N.tolist() == [0.5, -0.5, 0, 0, 0, 0]
    assert result.returns_V.tolist() == [1.0, 0.0, 0.1, 0.1, 0.1, 0.5]


def test_what_is_dropped_takes_no_part_in_later_statistics() -> None:
    over_batch = (mean("batch"), std("batch"))
    dropped = scheme(*over_batch, constant="drop")
    with_constant = advantages_of(dropped, [[1.0, 0.0, 0.25], [9.0, 9.0]])
    without = advantages_of(dropped, [[1.0, 0.0, 0.25]])
    assert with_constant.tolist() == [*without.tolist(), 0.0, 0.0]

    singles = scheme(mean(singleton="drop"), *over_batch)
    result = compute_advantages(singles, single_turn([[1.0, 0.0, 0.25], [9.0]]))
    assert result.kept_R.tolist() == [True, True, True, False]
    expected = advantages_of(scheme(mean(), *over_batch), [[1.0, 0.0, 0.25]])
    assert result.advantages_N.tolist() == [*expected.tolist(), 0.0]


def test_everything_may_be_dropped() -> None:
    spec = scheme(mean("batch"), std("batch"), constant="drop")
    result = compute_advantages(spec, single_turn([[1.0, 1.0]]))
    assert not result.kept_R.any()
    assert result.advantages_N.tolist() == [0.0, 0.0]


# Singletons


@pytest.mark.parametrize("kind", ["mean", "leave_one_out", "length_weighted"])
@pytest.mark.parametrize(
    ("singleton", "advantage", "kept"), [("zero", 0, True), ("raw", 0.5, True), ("drop", 0, False)]
)
def test_a_singleton_gets_what_is_declared(
    kind: str, singleton: Singleton, advantage: float, kept: bool
) -> None:
    spec = scheme(Baseline(kind, "group", "value", singleton))  # type: ignore[arg-type]
    result = compute_advantages(spec, single_turn([[1.0, 0.0], [0.5]]))
    assert result.advantages_N[2] == advantage
    assert result.kept_R.tolist() == [True, True, kept]


@pytest.mark.parametrize(
    ("over", "place"), [("group", "group 12 "), ("env", "env 4 "), ("batch", "the batch ")]
)
def test_a_singleton_can_be_an_error_that_names_its_scope(over: Scope, place: str) -> None:
    episodes = Episodes.from_rollouts([[1.0]], [[3]], [12], [4])
    with pytest.raises(AlgorithmError, match=f"^{place}has a single return"):
        compute_advantages(scheme(mean(over, "error")), episodes)


# Scopes, units and steps


def test_scopes_compare_within_group_environment_or_batch() -> None:
    def centred(over: Scope) -> list[float]:
        rewards, tokens = [[1.0], [3.0], [5.0], [11.0]], [[1], [1], [1], [1]]
        episodes = Episodes.from_rollouts(rewards, tokens, [7, 7, 2, 5], [0, 0, 0, 1])
        return list(compute_advantages(scheme(mean(over, "raw")), episodes).advantages_N)

    assert centred("group") == [-1, 1, 5, 11]
    assert centred("env") == [-2, 0, 2, 11]
    assert centred("batch") == [-4, -2, 0, 6]


def test_an_episode_scheme_gives_every_turn_the_same() -> None:
    episodes = Episodes.from_rollouts(
        [[0, 0, 1], [0.5], [0, 0]], [[1] * 3, [2], [4] * 2], [0] * 3, [0] * 3
    )
    result = compute_advantages(CENTER, episodes)
    assert [row.tolist() for row in result.by_rollout()] == [[0.5] * 3, [0.0], [-0.5] * 2]
    assert [row.tolist() for row in result.returns_by_rollout()] == [[1.0], [0.5], [0.0]]


def test_a_turn_scheme_gives_every_turn_its_own() -> None:
    episodes = Episodes.from_rollouts([[0, 1], [1.5]], [[1, 1], [1]], [0, 0], [0, 0])
    result = compute_advantages(scheme(mean("batch"), unit="turn", gamma=0.5), episodes)
    assert [row.tolist() for row in result.returns_by_rollout()] == [[0.5, 1.0], [1.5]]
    assert [row.tolist() for row in result.by_rollout()] == [[-0.5, 0.0], [0.5]]


def test_length_weights_are_the_tokens_of_all_turns() -> None:
    episodes = Episodes.from_rollouts([[0, 1], [0.0]], [[1, 2], [1]], [0, 0], [0, 0])
    result = compute_advantages(OPO, episodes)
    assert result.advantages_N.tolist() == [0.25, 0.25, -0.75]


def test_eps_goes_outside_or_inside_the_root() -> None:
    outside = scheme(Scale("std", "batch", "value", 0, 0.5, "outside"))
    inside = scheme(Scale("std", "batch", "value", 0, 0.5, "inside"))
    np.testing.assert_allclose(advantages_of(outside, [[1.0, -1.0]]), [1 / 1.5, -1 / 1.5])
    np.testing.assert_allclose(advantages_of(inside, [[1.0, -1.0]]), np.array([1, -1]) / 1.5**0.5)


def test_maxrl_divides_by_the_mean_return_and_ignores_groups_without_success() -> None:
    groups = [[1.0, 0, 0, 0], [0.0, 0, 0], [-1.0, 0.5]]
    assert advantages_of(MAXRL, groups).tolist() == [3, -1, -1, -1, 0, 0, 0, 0, 0]


def test_clip_bounds_what_comes_before_it() -> None:
    assert advantages_of(scheme(Clip(-0.25, 1.0)), [[3.0, 0.5, -2.0]]).tolist() == [1, 0.5, -0.25]


def test_tiny_spreads_are_scaled_like_any_other() -> None:
    small = advantages_of(grpo(0), [[0.0, 1e-200, 2e-200]])
    np.testing.assert_allclose(small, advantages_of(grpo(0), [[0.0, 1.0, 2.0]]))


def test_values_without_tokens_weigh_nothing() -> None:
    whiten = scheme(mean(weight="tokens"), std(weight="tokens"))
    with_empty = advantages_of(whiten, [[1.0, 0.0, 7.0]], [[2, 3, 0]])
    without = advantages_of(whiten, [[1.0, 0.0]], [[2, 3]])
    assert with_empty[:2].tolist() == without.tolist()
    assert advantages_of(whiten, [[1.0, 0.0]], [[0, 0]]).tolist() == [0.0, 0.0]
    assert advantages_of(whiten, [[0.1, 0.1, 0.1, 7.0]], [[1, 1, 1, 0]]).tolist() == [0.0] * 4
    tiny = advantages_of(scheme(std(weight="tokens")), [[0.0, 1.0, 2e-276]], [[1, 0, 1]])
    np.testing.assert_allclose(tiny, [0.0, 0.0, 2**0.5])


# Refusals


@pytest.mark.parametrize("spec", [REINFORCE, CENTER, rebn()], ids=["reinforce", "center", "rebn"])
def test_a_reward_that_is_not_finite_is_refused(spec: AdvantageScheme) -> None:
    with pytest.raises(AlgorithmError, match="reward of rollout 1, turn 0 is nan"):
        advantages_of(spec, [[1.0, float("nan")]])


@pytest.mark.parametrize(
    "spec", [CENTER, grpo(), scheme(std("batch")), scheme(mean(), Clip(-1, 1)), MAXRL]
)
def test_rewards_that_overflow_are_refused(spec: AdvantageScheme) -> None:
    with pytest.raises(AlgorithmError, match="overflow"):
        advantages_of(spec, [[1.7e308, 1.7e308, -1.6e308]])


def test_columns_that_do_not_match_are_refused() -> None:
    with pytest.raises(AlgorithmError, match="one reward and one token count"):
        Episodes.from_rollouts([[1.0]], [[1, 2]], [0], [0])
    with pytest.raises(AlgorithmError, match="1 rollouts have 2 group labels"):
        Episodes.from_rollouts([[1.0]], [[1]], [0, 1], [0])
    with pytest.raises(AlgorithmError, match="negative number of action tokens"):
        Episodes.from_rollouts([[1.0]], [[-1]], [0], [0])
    with pytest.raises(AlgorithmError, match="rollout 0 has no turn"):
        Episodes.from_rollouts([[]], [[]], [0], [0])


def test_an_empty_batch_has_no_advantages() -> None:
    result = compute_advantages(grpo(), Episodes.from_rollouts([], [], [], []))
    assert result.by_rollout() == []
    assert len(result.kept_R) == 0
