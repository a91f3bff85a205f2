"""Advantages on worked examples: published values, constants, singletons, scopes, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from algo_schemes import (
    CENTER,
    MAXRL,
    OPO,
    REINFORCE,
    RLOO,
    Singleton,
    advantages_of,
    by_mean,
    grpo,
    mean,
    rebn,
    scheme,
    single_turn,
    std,
)

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Episodes
from rlc.algo.errors import AlgorithmError
from rlc.algo.scheme import AdvantageScheme, Baseline, Clip, Scale, Scope


def test_a_raw_singleton_passes_a_scale_over_its_own_scope() -> None:
    normed = advantages_of(scheme(mean(singleton="raw"), std(eps=1e-6)), [[0.5]])
    assert normed.tolist() == [0.5 / (1 + 1e-6)]
    maxrl = scheme(mean(singleton="raw"), by_mean(eps=1e-6))
    assert advantages_of(maxrl, [[0.5], [-2.0]]).tolist() == [0.5, -2.0]


@pytest.mark.engine
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
    ("over", "place"),
    [
        ("group", "group 12 "),
        ("role", "role 3 of group 12 "),
        ("env", "env 4 "),
        ("batch_role", "role 3 "),
        ("batch", "the batch "),
    ],
)
def test_a_singleton_can_be_an_error_that_names_its_scope(over: Scope, place: str) -> None:
    episodes = Episodes.from_rollouts([[1.0]], [[3]], [12], [4], [3])
    with pytest.raises(AlgorithmError, match=f"^{place}has a single return"):
        compute_advantages(scheme(mean(over, "error")), episodes)


# Scopes, units and steps


def test_scopes_compare_within_group_role_environment_or_batch() -> None:
    def centred(over: Scope) -> list[float]:
        rewards, tokens = [[1.0], [3.0], [8.0], [5.0], [13.0]], [[1]] * 5
        labels = [7, 7, 7, 2, 5], [0, 0, 0, 0, 1], [1, 0, 1, 1, 1]
        episodes = Episodes.from_rollouts(rewards, tokens, *labels)
        return list(compute_advantages(scheme(mean(over, "raw")), episodes).advantages_N)

    assert centred("group") == [-3, -1, 4, 5, 13]
    assert centred("role") == [-3.5, 3, 3.5, 5, 13]
    assert centred("env") == [-3.25, -1.25, 3.75, 0.75, 13]
    assert centred("batch_role") == [-5.75, 3, 1.25, -1.75, 6.25]
    assert centred("batch") == [-5, -3, 2, -1, 7]


def test_constant_groups_are_those_that_a_scheme_compares() -> None:
    """A role in which all are equal is dropped under a role baseline, not under a group's."""
    rewards, tokens = [[1.0], [1.0], [0.0], [2.0]], [[1]] * 4
    episodes = Episodes.from_rollouts(rewards, tokens, [5] * 4, [0] * 4, [0, 0, 1, 1])

    def kept(over: Scope) -> list[bool]:
        spec = scheme(mean(over), constant="drop")
        return list(compute_advantages(spec, episodes).kept_R)

    assert kept("role") == [False, False, True, True]
    assert kept("group") == [True] * 4


def test_an_episode_scheme_gives_every_turn_the_same() -> None:
    episodes = Episodes.from_rollouts(
        [[0, 0, 1], [0.5], [0, 0]], [[1] * 3, [2], [4] * 2], [0] * 3, [0] * 3
    )
    result = compute_advantages(CENTER, episodes)
    assert [row.tolist() for row in result.by_rollout()] == [[0.5] * 3, [0.0], [-0.5] * 2]


def test_a_turn_scheme_gives_every_turn_its_own() -> None:
    episodes = Episodes.from_rollouts([[0, 1], [1.5]], [[1, 1], [1]], [0, 0], [0, 0])
    result = compute_advantages(scheme(mean("batch"), unit="turn", gamma=0.5), episodes)
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


def test_eps_may_be_the_smallest_variance() -> None:
    clamped = scheme(Scale("std", "group", "value", 0, 0.25, "clamp"))
    advantages = advantages_of(clamped, [[0.25, -0.25], [3.0, -3.0]])
    assert advantages.tolist() == [0.5, -0.5, 1, -1]


def test_a_scale_may_measure_the_returns() -> None:
    spec = scheme(mean(), Scale("std", "batch", "value", 0, 0.0, "outside", of="returns"))
    returns = [[1.0, 3.0], [7.0, 9.0]]
    spread = np.std(returns)
    np.testing.assert_allclose(advantages_of(spec, returns), np.array([-1, 1, -1, 1]) / spread)


def test_a_clip_may_have_one_side() -> None:
    assert advantages_of(scheme(Clip(None, 1.0)), [[3.0, -7.0]]).tolist() == [1, -7]
    assert advantages_of(scheme(Clip(0.0, None)), [[3.0, -7.0]]).tolist() == [3, 0]


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
    with pytest.raises(AlgorithmError, match="1 rollouts have 2 role labels"):
        Episodes.from_rollouts([[1.0]], [[1]], [0], [0], [0, 1])
    with pytest.raises(AlgorithmError, match="negative number of action tokens"):
        Episodes.from_rollouts([[1.0]], [[-1]], [0], [0])
    with pytest.raises(AlgorithmError, match="rollout 0 has no turn"):
        Episodes.from_rollouts([[]], [[]], [0], [0])


def test_an_empty_batch_has_no_advantages() -> None:
    result = compute_advantages(grpo(), Episodes.from_rollouts([], [], [], []))
    assert result.by_rollout() == []
    assert len(result.kept_R) == 0
