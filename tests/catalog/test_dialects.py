"""Every preset against worked values: the group of four, the group of one, the group of equals."""

from __future__ import annotations

import numpy as np
import pytest
from algo_schemes import advantages_of, single_turn
from dialect_batches import RECIPE, scheme_of

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Episodes
from rlc.algo.errors import AlgorithmError
from rlc.algo.scheme import scope_of, statistics
from rlc.catalog.builtins.advantages import UNSUPPORTED
from rlc.catalog.index import BUILTINS, builtins_of
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

# Three tokens a rollout. What is observed in verl 0.9.1 is so marked; the rest is worked out.
BATCH = [[1.0, 0.0, 0.0, 1.0], [0.5], [2.0, 2.0]]
HALF = [0.5, -0.5, -0.5, 0.5]
LOO = [2 / 3, -2 / 3, -2 / 3, 2 / 3]
S1 = [3**0.5 / 2, -(3**0.5) / 2, -(3**0.5) / 2, 3**0.5 / 2]  # over the unbiased deviation
S0 = [1.0, -1.0, -1.0, 1.0]
MEAN = 6.5 / 7  # of the batch
ALL = np.array([1, 0, 0, 1, 0.5, 2, 2])
FROM_MEAN = ALL - MEAN


def over(values: object, size: float) -> list[float]:
    return list(np.asarray(values, dtype=np.float64) / size)


def deviation(values: list[float]) -> float:
    return float(np.std(values, ddof=1))


def tokenwise(values: list[float], ddof: int) -> list[float]:
    """Whitened over tokens, three of them a value."""
    tokens = np.repeat(values, 3)
    spread = np.sqrt(tokens.var(ddof=ddof) + (1e-8 if ddof else 0))
    return list((np.asarray(values) - tokens.mean()) / spread)


# advantages on the group of four, the group of one, the group of equals
EXPECTED: dict[str, list[float]] = {
    "grpo()": [*S1, 0, 0, 0],
    "grpo(singleton = raw, scale = none)": [*HALF, 0.5, 0, 0],
    "center()": [*HALF, 0, 0, 0],
    "center(singleton = raw)": [*HALF, 0.5, 0, 0],
    "center(scope = batch)": list(FROM_MEAN),
    "dr_grpo()": [*HALF, 0, 0, 0],
    "rloo()": [*LOO, 0, 0, 0],
    "rloo(singleton = raw)": [*LOO, 0.5, 0, 0],
    "reinforce()": list(ALL),
    "returns()": list(ALL),
    "reinforce_pp()": tokenwise(list(ALL), 1),
    "reinforce_pp_baseline()": tokenwise([*HALF, 0.5, 0, 0], 1),
    "rebn()": over(FROM_MEAN, ALL.std(ddof=1)),
    "opo()": [*HALF, 0, 0, 0],
    "maxrl()": [1, -1, -1, 1, 0, 0, 0],
    "grpo_passk()": [0] * 7,
    "rae()": list(ALL),  # the average is 0 before the first step
    "gpg()": [*over(HALF, 5 / 7), 0, 0, 0],
    # a reward that is one number: GRPO, then normalised over the batch
    "gdpo()": over([*S1, 0, 0, 0], deviation([*S1, 0, 0, 0])),
    # observed: verl 0.9.1
    "verl.grpo()": [0.866024, -0.866024, -0.866024, 0.866024, 0.5, 0, 0],
    "verl.grpo(norm = false)": [*HALF, 0.5, 0, 0],
    "verl.rloo()": [0.666667, -0.666667, -0.666667, 0.666667, 0.5, 0, 0],
    "verl.rloo_vectorized()": [0.666667, -0.666667, -0.666667, 0.666667, 0, 0, 0],
    "verl.opo()": [*HALF, 0.5, 0, 0],
    "verl.reinforce_pp_baseline()": [
        *[1.004193, -1.338924, -1.338924, 1.004193, 1.004193, -0.167365, -0.167365]
    ],
    "verl.reinforce_pp()": tokenwise(list(ALL), 1),
    "verl.gpg()": [*over(HALF, 5 / 7), 0.7, 0, 0],
    "verl.gdpo()": tokenwise([*S1, 0.5, 0, 0], 1),
    "trl.gdpo()": over(
        [*over(HALF, (1 / 3) ** 0.5 + 1e-4), 0, 0, 0],
        deviation([*over(HALF, (1 / 3) ** 0.5 + 1e-4), 0, 0, 0]) + 1e-4,
    ),
    "trl.grpo()": [*over(HALF, (1 / 3) ** 0.5 + 1e-4), 0, 0, 0],
    "trl.grpo(scale_rewards = batch)": [*over(HALF, ALL.std(ddof=1) + 1e-4), 0, 0, 0],
    "trl.grpo(scale_rewards = none)": [*HALF, 0, 0, 0],
    "trl.rloo()": [*LOO, 0, 0, 0],
    "trl.rloo(normalize = true)": [  # six values: a group of one is left out
        *over(LOO, (4 * 4 / 9 / 5) ** 0.5 + 1e-4),
        *[0, 0, 0],
    ],
    "openrlhf.reinforce_pp()": tokenwise(list(ALL), 0),
    "openrlhf.flash_reinforce()": list(FROM_MEAN),
    "rllm.grpo()": [*over(HALF, 0.5 + 1e-6), 0.5 / (1 + 1e-6), 0, 0],
    "rllm.grpo(norm = false)": [*HALF, 0.5, 0, 0],
    "rllm.legacy_grpo()": [*S0, 0.5, 0, 0],
    "rllm.rloo()": [*LOO, 0.5, 0, 0],
    "rllm.reinforce_pp_baseline()": [*over(HALF, (1 / 7) ** 0.5 + 1e-6), 0, 0, 0],
    "rllm.prpo()": over(FROM_MEAN, ALL.std() + 1e-6),
    "skyrl.grpo()": [*over(HALF, (1 / 3) ** 0.5 + 1e-6), 0.5 / (1 + 1e-6), 0, 0],
    "skyrl.rloo()": [*LOO, 0, 0, 0],
    "skyrl.maxrl()": [*over(HALF, 0.5 + 1e-6), 0.5, 0, 0],
    # the others of a success are 1, 0, 0: mean 1/3, unbiased variance 1/3
    "nemo.grpo()": [*over(LOO, (1 / 3) ** 0.5 + 1e-6), 0, 0, 0],
    "nemo.grpo(normalize = false)": [*LOO, 0, 0, 0],
    "nemo.grpo(leave_one_out = false)": [*over(HALF, (1 / 3) ** 0.5 + 1e-6), 0, 0, 0],
    "nemo.reinforce_pp()": tokenwise([*HALF, 0, 0, 0], 0),
    "nemo.reinforce_pp(minus_baseline = false)": tokenwise(list(ALL), 0),
    "prime.center()": [*HALF, 0, 0, 0],
    "prime.maxrl()": [*S0, 0, 0, 0],
    "openreward.centered_normalized()": [*S1, 0, 0, 0],
    "openreward.centered()": [*HALF, 0, 0, 0],
    "openreward.direct()": [1, 0, 0, 1, 0.5, 0, 0],
    "cookbook.center()": [*HALF, 0, 0, 0],
    "gem.rebn()": over(FROM_MEAN, ALL.std(ddof=1) + 1e-9),
    "oat.rebn()": over(FROM_MEAN, ALL.std() + 1e-9),
    "areal.normalize()": over(FROM_MEAN, ALL.std(ddof=1) + 1e-5),
    "areal.normalize(mean_level = group, std_level = group)": [
        *over(HALF, (1 / 3) ** 0.5 + 1e-5),
        *[0, 0, 0],
    ],
    "areal.normalize(mean_level = group, std_level = none)": [*HALF, 0, 0, 0],
    "areal.normalize(mean_level = none, std_level = batch, unbiased = false)": over(
        ALL, (10.25 / 7) ** 0.5 + 1e-5
    ),
    "areal.normalize(mean_level = group, std_level = group, leave_one_out = true)": [
        *over(LOO, (4 * 4 / 9 / 3) ** 0.5 + 1e-5),
        *[0.5 / (1 + 1e-5), 0, 0],
    ],
}
# Those that are called as they are; a function of one's own is none.
PRESETS = [one for one in builtins_of("advantage") if one.usage() == f"{one.name}()"]
NEEDS_PEERS = {
    "verl.grpo_passk()": ([3.0, 1.0, 2.0], [1 / (1 + 1e-6), 0, 0]),
    "verl.grpo_passk(norm = false)": ([3.0, 1.0, 2.5], [0.5, 0, 0]),
    "openrlhf.grpo()": ([1.0, 0.0, 0.0, 1.0], over(HALF, (1 / 3) ** 0.5 + 1e-9)),
    "openrlhf.reinforce_pp_baseline()": ([1.0, 0.0, 0.0, 1.0], S0),
}


@pytest.mark.parametrize("text", EXPECTED)
def test_a_preset_gives_the_worked_values(text: str) -> None:
    np.testing.assert_allclose(advantages_of(scheme_of(text), BATCH), EXPECTED[text], atol=2e-6)


@pytest.mark.parametrize("text", NEEDS_PEERS)
def test_a_preset_that_needs_peers_gives_the_worked_values_and_refuses_a_single(text: str) -> None:
    rewards, expected = NEEDS_PEERS[text]
    np.testing.assert_allclose(advantages_of(scheme_of(text), [rewards]), expected, atol=2e-6)
    with pytest.raises(AlgorithmError, match="group 1 has a single return"):
        advantages_of(scheme_of(text), [rewards, [0.5]])


def test_every_preset_has_worked_values() -> None:
    named = {text.partition("(")[0] for text in [*EXPECTED, *NEEDS_PEERS]}
    assert named == {preset.name for preset in PRESETS}


def test_what_cannot_be_expressed_is_not_a_preset_and_has_a_reason() -> None:
    assert not UNSUPPORTED.keys() & {builtin.name for builtin in BUILTINS}
    assert all(len(reason) > 30 for reason in UNSUPPORTED.values())


# Float noise that some libraries turn into advantages
NOISY = [[0.1] * 3, [0.1] * 10, [0.3] * 6]


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_equal_returns_never_give_noise(preset: object) -> None:
    """A baseline over the group, or over a batch of one group, leaves exact zeros."""
    scheme = scheme_of(f"{preset.name}()")  # type: ignore[attr-defined]
    if not statistics(scheme) or scheme.result.shape != "episode":
        return
    for group in NOISY:
        assert advantages_of(scheme, [group]).tolist() == [0.0] * len(group)


def test_a_spread_below_the_tolerance_gives_nothing() -> None:
    scheme = scheme_of("openreward.centered_normalized()")
    assert advantages_of(scheme, [[1.0, 1.0 + 1e-9]]).tolist() == [0.0, 0.0]
    np.testing.assert_allclose(advantages_of(scheme, [[1.0, 1.0 + 1e-7]]), [-(0.5**0.5), 0.5**0.5])


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("cookbook.center()", [True] * 7),
        ("cookbook.center(drop_constant = true)", [True] * 4 + [False] * 3),
        ("prime.center()", [True] * 4 + [False] * 3),
        ("prime.center(drop_constant = false)", [True] * 7),
        ("openreward.centered_normalized()", [True] * 5 + [False] * 2),
        ("openreward.centered()", [True] * 5 + [False] * 2),
        ("openreward.direct()", [True] * 5 + [False] * 2),
        ("center(constant = drop)", [True] * 5 + [False] * 2),
    ],
)
def test_groups_without_a_difference_are_left_out_where_the_library_does(
    text: str, kept: list[bool]
) -> None:
    assert compute_advantages(scheme_of(text), single_turn(BATCH)).kept_R.tolist() == kept


def test_the_others_of_a_lone_success_have_no_spread_to_divide_by() -> None:
    """NeMo-RL: divided only where the others differ, by the unbiased deviation."""
    advantages = advantages_of(scheme_of("nemo.grpo()"), [[1.0, 0.0, 0.0], [3.0, 1.0]])
    spread = 0.5**0.5 + 1e-6
    expected = [1.0, -0.5 / spread, -0.5 / spread, 2.0, -2.0]
    np.testing.assert_allclose(advantages, expected, rtol=1e-12)


def test_only_a_single_best_gets_the_margin() -> None:
    scheme = scheme_of("grpo_passk(scale = none)")
    assert advantages_of(scheme, [[1.0, 5.0, 3.5], [2.0, 2.0, 1.0]]).tolist() == [
        0,
        1.5,
        0,
        0,
        0,
        0,
    ]


def test_maxrl_gives_nothing_where_the_mean_is_not_positive() -> None:
    for text in ("maxrl()", "prime.maxrl()", "skyrl.maxrl()"):
        assert advantages_of(scheme_of(text), [[-3.0, 1.0], [-1.0, 1.0]]).tolist() == [0.0] * 4


def test_gpg_scales_by_all_returns_over_those_that_are_not_zero() -> None:
    scheme = scheme_of("verl.gpg()")
    advantages = advantages_of(scheme, [[1.0, 0.0], [0.0, 0.0, 0.0], [2.0, 4.0, 0.0]])
    centred = np.array([0.5, -0.5, 0, 0, 0, 0, 2, -2])
    np.testing.assert_allclose(advantages, centred * 8 / 3)
    assert advantages_of(scheme, [[0.0, 0.0]]).tolist() == [0.0, 0.0]


def test_rebn_counts_every_turn() -> None:
    episodes = Episodes.from_rollouts([[0, 0, 1], [0.5]], [[1] * 3, [1]], [0, 1], [0, 0])
    turns = np.array([0.81, 0.9, 1.0, 0.5])
    expected = (turns - turns.mean()) / (turns.std(ddof=1) + 1e-9)
    for text in ("rebn()", "gem.rebn()"):
        np.testing.assert_allclose(
            compute_advantages(scheme_of(text), episodes).advantages_N, expected
        )
    flat = np.array([1, 1, 1, 0.5])
    oat = (flat - flat.mean()) / (flat.std() + 1e-9)
    np.testing.assert_allclose(
        compute_advantages(scheme_of("oat.rebn()"), episodes).advantages_N, oat
    )


@pytest.mark.parametrize("text", ["rebn()", "gem.rebn()", "oat.rebn()", "reinforce_pp()"])
def test_a_single_turn_has_no_advantage(text: str) -> None:
    assert advantages_of(scheme_of(text), [[1.0]]).tolist() == [0.0]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("rllm.grpo()", None),
        ("rllm.prpo()", None),
        ("rllm.grpo(scope = role)", "`role` means `group`"),
        ("returns() |> baseline(mean, over = batch_role)", "`batch_role` means `batch`"),
    ],
)
def test_roles_that_no_environment_has_are_a_mistake_only_if_scheme_of(
    text: str, means: str | None
) -> None:
    compiled = compile_source(Source("test.rl", RECIPE.format(text)))
    found = [item.message for item in compiled.diagnostics if item.code == "RL0423"]
    assert found == ([f"no environment here has roles, so {means}"] if means else [])


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)
def test_presets_of_a_group_take_another_scope(preset: object) -> None:
    """Roles of one task are compared with each other only, however many there are of each."""
    if "scope" not in [param.name for param in preset.params]:  # type: ignore[attr-defined]
        return
    scheme = scheme_of(f"{preset.name}(scope = role)")  # type: ignore[attr-defined]
    scopes = {scope_of(node) for _, node in statistics(scheme)}
    assert scopes <= {"role", "batch", "batch_role"}
    if "batch_role" in scopes:
        return  # in separate groups its roles would be one
    solver, judge = [1.0, 0.0, 0.25, 0.5, 0.0], [3.0, 2.0]
    in_groups = scheme_of(f"{preset.name}(scope = group)")  # type: ignore[attr-defined]
    apart = advantages_of(in_groups, [solver, judge], [[2] * len(solver), [2] * len(judge)])
    episodes = Episodes.from_rollouts(
        [[reward] for reward in (*solver, *judge)], [[2]] * 7, [4] * 7, [0] * 7, [1] * 5 + [0] * 2
    )
    np.testing.assert_array_equal(compute_advantages(scheme, episodes).advantages_N, apart)
