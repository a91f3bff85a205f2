"""Identities that hold for every batch: algebra, invariances, and freedom from order."""

from __future__ import annotations

import random
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from algo_schemes import (
    CENTER,
    MAXRL,
    OPO,
    REINFORCE,
    REINFORCE_PP_BASELINE,
    RLOO,
    advantages_of,
    bits,
    grpo,
    leave_one_out,
    mean,
    rebn,
    scheme,
    single_turn,
    std,
)
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from rlc.algo.advantages import compute_advantages
from rlc.algo.episodes import Episodes, Floats
from rlc.algo.scheme import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Clip,
    Returns,
    Scale,
    WeightedSum,
)
from rlc.algo.scopes import stable_order

# Eighths: differences and shifts are exact, so that constancy survives them.
eighths = st.integers(-80, 80).map(lambda n: n / 8)
group = st.lists(eighths, min_size=2, max_size=9)
groups = st.lists(group, min_size=1, max_size=5)
any_groups = st.lists(st.lists(eighths, min_size=1, max_size=9), min_size=1, max_size=5)


@st.composite
def tokens_for(draw: st.DrawFn, shape: list[list[float]], low: int = 1) -> list[list[int]]:
    return [draw(st.lists(st.integers(low, 9), min_size=len(g), max_size=len(g))) for g in shape]


def close(actual: Floats, expected: npt.ArrayLike) -> None:
    wanted = np.broadcast_to(np.asarray(expected, dtype=np.float64), actual.shape)
    np.testing.assert_allclose(actual, wanted, rtol=1e-9, atol=1e-9)


# Algebra


@given(group)
def test_centred_advantages_sum_to_zero(rewards: list[float]) -> None:
    assert advantages_of(CENTER, [rewards]).sum() == pytest.approx(0, abs=1e-9)


@given(group)
def test_leave_one_out_is_a_scaled_centring_and_its_own_definition(rewards: list[float]) -> None:
    n, total = len(rewards), sum(rewards)
    rloo = advantages_of(RLOO, [rewards])
    close(rloo, n / (n - 1) * advantages_of(CENTER, [rewards]))
    close(rloo, [r - (total - r) / (n - 1) for r in rewards])


@given(group)
def test_unbiased_and_biased_std_differ_by_a_known_factor(rewards: list[float]) -> None:
    n = len(rewards)
    close(
        advantages_of(grpo(1), [rewards]), ((n - 1) / n) ** 0.5 * advantages_of(grpo(0), [rewards])
    )


@given(group)
def test_normalised_advantages_are_bounded_by_the_group_size(rewards: list[float]) -> None:
    n = len(rewards)
    assert np.abs(advantages_of(grpo(0), [rewards])).max() <= (n - 1) ** 0.5 + 1e-9
    assert np.abs(advantages_of(grpo(1), [rewards])).max() <= (n - 1) / n**0.5 + 1e-9


@given(st.integers(2, 40), st.data())
def test_binary_rewards_have_a_closed_form(n: int, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, n - 1))
    p = k / n
    advantages = advantages_of(grpo(0), [[1.0] * k + [0.0] * (n - k)])
    close(advantages[:k], ((1 - p) / p) ** 0.5)
    close(advantages[k:], -((p / (1 - p)) ** 0.5))
    close(advantages_of(MAXRL, [[1.0] * k + [0.0] * (n - k)])[:k], (1 - p) / p)


@given(groups, st.sampled_from([0.0, 1e-6]), st.sampled_from([0, 1]))
def test_std_scaling_is_its_definition(batch: list[list[float]], eps: float, ddof: int) -> None:
    expected = [
        np.zeros(len(g))
        if max(g) == min(g)
        else (np.array(g) - np.mean(g)) / (np.std(g, ddof=ddof) + eps)
        for g in batch
    ]
    close(advantages_of(grpo(ddof, eps), batch), np.concatenate(expected))


# Token weights


@given(st.data(), groups)
def test_counting_tokens_equals_writing_every_token_out(
    data: st.DataObject, batch: list[list[float]]
) -> None:
    tokens = data.draw(tokens_for(batch))
    centred = np.concatenate([np.array(g) - np.mean(g) for g in batch])
    written_out = np.repeat(centred, np.concatenate(tokens))
    expected = (centred - written_out.mean()) / np.sqrt(written_out.var(ddof=1) + 1e-8)
    if any(max(g) != min(g) for g in batch):
        close(advantages_of(REINFORCE_PP_BASELINE, batch, tokens), expected)
    else:
        assert not advantages_of(REINFORCE_PP_BASELINE, batch, tokens).any()


@given(st.data(), group)
def test_length_weighting_is_its_definition(data: st.DataObject, rewards: list[float]) -> None:
    tokens = data.draw(tokens_for([rewards]))
    baseline = np.average(rewards, weights=tokens[0])
    close(advantages_of(OPO, [rewards], tokens), np.array(rewards) - baseline)
    by_tokens = scheme(mean(weight="tokens"))
    assert bits(compute_advantages(OPO, single_turn([rewards], tokens))) == bits(
        compute_advantages(by_tokens, single_turn([rewards], tokens))
    )


@given(st.data(), group)
def test_token_weighted_leave_one_out_is_its_definition(
    data: st.DataObject, rewards: list[float]
) -> None:
    tokens = data.draw(tokens_for([rewards]))
    r, w = np.array(rewards), np.array(tokens[0])
    others = [np.average(np.delete(r, i), weights=np.delete(w, i)) for i in range(len(r))]
    close(advantages_of(scheme(leave_one_out(weight="tokens")), [rewards], tokens), r - others)


@given(group, st.sampled_from([0, 1]))
def test_the_spread_of_the_others_is_its_definition(rewards: list[float], ddof: int) -> None:
    spec = scheme(Scale("std_of_others", "group", "value", ddof, 0.0, "outside"))
    expected = []
    for i, reward in enumerate(rewards):
        others = np.delete(rewards, i)
        alike = others.max() == others.min()
        expected.append(reward if alike else reward / others.std(ddof=ddof))
    close(advantages_of(spec, [rewards]), expected)


@given(st.data(), group)
def test_others_without_tokens_have_no_spread(data: st.DataObject, rewards: list[float]) -> None:
    tokens = data.draw(tokens_for([rewards], low=0))
    spec = scheme(Scale("std_of_others", "group", "tokens", 0, 0.0, "outside"))
    expected = []
    for i, reward in enumerate(rewards):
        others = np.repeat(np.delete(rewards, i), np.delete(tokens[0], i))
        alike = not len(others) or others.max() == others.min()
        expected.append(0.0 if tokens[0][i] == 0 else reward / (1.0 if alike else others.std()))
    close(advantages_of(spec, [rewards], tokens), expected)


@given(st.data(), group)
def test_the_root_mean_square_is_its_definition(data: st.DataObject, rewards: list[float]) -> None:
    tokens = data.draw(tokens_for([rewards]))
    spec = scheme(Scale("rms", "group", "tokens", 1, 1e-6, "outside"))
    written_out = np.repeat(rewards, tokens[0])
    size = np.sqrt((written_out**2).sum() / (len(written_out) - 1)) + 1e-6
    close(advantages_of(spec, [rewards], tokens), np.array(rewards) / size)


@given(any_groups)
def test_the_best_of_the_others_is_its_definition(batch: list[list[float]]) -> None:
    spec = scheme(Baseline("best_of_others", "group", "value", "raw"))
    expected = [
        reward - max(rewards[:i] + rewards[i + 1 :], default=0.0)
        for rewards in batch
        for i, reward in enumerate(rewards)
    ]
    assert advantages_of(spec, batch).tolist() == expected


# Invariances

PASS_K = scheme(
    Baseline("best_of_others", "group", "value", "zero"),
    Clip(0.0, None),
    evolve(std(), of="returns"),
)
SHIFT_INVARIANT = {
    "grpo_passk": PASS_K,
    "center": CENTER,
    "grpo": grpo(),
    "grpo ddof 0": grpo(0, 1e-6),
    "rloo": RLOO,
    "opo": OPO,
    "reinforce_pp_baseline": REINFORCE_PP_BASELINE,
    "rebn": rebn(),
}


@pytest.mark.parametrize("name", SHIFT_INVARIANT)
@given(data=st.data(), batch=groups, shift=eighths)
def test_adding_a_constant_to_all_rewards_changes_nothing(
    name: str, data: st.DataObject, batch: list[list[float]], shift: float
) -> None:
    tokens = data.draw(tokens_for(batch))
    spec, shifted = SHIFT_INVARIANT[name], [[r + shift for r in g] for g in batch]
    close(advantages_of(spec, shifted, tokens), advantages_of(spec, batch, tokens))


@pytest.mark.parametrize("spec", [REINFORCE, MAXRL], ids=["reinforce", "maxrl"])
def test_some_schemes_do_depend_on_a_constant(spec: AdvantageScheme) -> None:
    assert not np.allclose(advantages_of(spec, [[1.0, 0.0]]), advantages_of(spec, [[2.0, 1.0]]))


def rebn_advantages(gamma: float, rewards_RT: list[list[float]]) -> Floats:
    labels = [0] * len(rewards_RT)
    tokens = [[1] * len(rewards) for rewards in rewards_RT]
    episodes = Episodes.from_rollouts(rewards_RT, tokens, labels, labels)
    return compute_advantages(rebn(gamma), episodes).advantages_N


@given(st.lists(st.lists(eighths, min_size=1, max_size=4), min_size=2, max_size=6), eighths)
def test_undiscounted_rebn_forgets_a_constant_in_the_last_reward(
    rewards_RT: list[list[float]], shift: float
) -> None:
    shifted = [[*rewards[:-1], rewards[-1] + shift] for rewards in rewards_RT]
    close(rebn_advantages(1.0, shifted), rebn_advantages(1.0, rewards_RT))


def test_rebn_depends_on_a_constant_that_its_turns_see_differently() -> None:
    before = [[0.0, 1.0], [0.5]]
    last, every = [[0.0, 3.0], [2.5]], [[2.0, 3.0], [2.5]]
    assert not np.allclose(rebn_advantages(0.9, last), rebn_advantages(0.9, before))
    assert not np.allclose(rebn_advantages(1.0, every), rebn_advantages(1.0, before))


@pytest.mark.parametrize("ddof", [0, 1])
@given(batch=groups, factor=st.floats(1e-6, 1e6))
def test_without_eps_std_scaling_forgets_the_unit_of_reward(
    ddof: int, batch: list[list[float]], factor: float
) -> None:
    scaled = [[r * factor for r in g] for g in batch]
    close(advantages_of(grpo(ddof), scaled), advantages_of(grpo(ddof), batch))


# Order and labels

any_reward = st.floats(-1e6, 1e6) | st.sampled_from([0.0, -0.0, 0.1, 0.3, 1.0])
scopes = st.sampled_from(["group", "role", "env", "batch_role", "batch"])
weights = st.sampled_from(["value", "tokens"])
baselines = st.builds(
    Baseline,
    st.sampled_from(["mean", "leave_one_out", "length_weighted", "best_of_others"]),
    scopes,
    weights,
    st.sampled_from(["zero", "raw", "drop"]),
)
scales = st.builds(
    Scale,
    st.sampled_from(["std", "std_of_others", "rms", "mean", "nonzero_share"]),
    scopes,
    weights,
    st.sampled_from([0, 1]),
    st.sampled_from([0.0, 1e-6]),
    st.sampled_from(["outside", "inside", "clamp"]),
    st.sampled_from(["values", "returns"]),
    st.sampled_from([0.0, 1e-8]),
)
clips = st.builds(Clip, st.sampled_from([None, -5.0]), st.sampled_from([None, 5.0]))
steps = st.lists(baselines | scales | clips, max_size=3)
returns = st.builds(Returns, st.sampled_from(["episode", "turn"]), st.sampled_from([0.9, 1.0]))


@st.composite
def schemes(draw: st.DrawFn) -> AdvantageScheme:
    chosen: list[AdvantageStep] = [*draw(steps)]
    if draw(st.booleans()):
        chosen.insert(draw(st.integers(0, len(chosen))), WeightedSum())
    unit, dropped = draw(returns), draw(st.booleans())
    constant: Literal["keep", "drop"] = "drop" if dropped else "keep"
    return scheme(*chosen, unit=unit.unit, gamma=unit.gamma, constant=constant)


Rollouts = list[tuple[list[float], list[int], int, int, int]]


@st.composite
def rollouts(draw: st.DrawFn) -> Rollouts:
    """Rewards, token counts, group, environment and role of up to 24 rollouts of 1 to 3 turns."""
    turn = st.tuples(any_reward, st.integers(0, 50))
    turns = st.lists(turn, min_size=1, max_size=3)
    labels = st.integers(0, 4), st.integers(0, 2), st.integers(0, 1)
    drawn = draw(st.lists(st.tuples(turns, *labels), min_size=1, max_size=24))
    return [([r for r, _ in ts], [n for _, n in ts], g, e, role) for ts, g, e, role in drawn]


def episodes_of(batch: Rollouts) -> Episodes:
    rewards, tokens, group_R, env_R, role_R = zip(*batch, strict=True)
    return Episodes.from_rollouts(rewards, tokens, group_R, env_R, role_R)


@given(schemes(), rollouts(), st.randoms(use_true_random=False))
def test_the_order_of_the_batch_changes_no_bit(
    spec: AdvantageScheme, batch: Rollouts, shuffler: random.Random
) -> None:
    order = list(range(len(batch)))
    shuffler.shuffle(order)
    straight = compute_advantages(spec, episodes_of(batch))
    shuffled = compute_advantages(spec, episodes_of([batch[i] for i in order]))
    assert shuffled.kept_R.tolist() == straight.kept_R[order].tolist()
    rows = straight.by_rollout()
    for place, row in zip(order, shuffled.by_rollout(), strict=True):
        assert row.tobytes() == rows[place].tobytes()


@given(schemes(), rollouts())
def test_the_names_of_groups_environments_and_roles_change_no_bit(
    spec: AdvantageScheme, batch: Rollouts
) -> None:
    renamed = [
        (r, t, [3, -7, 10**12, 0, 5][g], [9, 8, -1][e], [7, -7][role]) for r, t, g, e, role in batch
    ]
    assert bits(compute_advantages(spec, episodes_of(batch))) == bits(
        compute_advantages(spec, episodes_of(renamed))
    )


@given(schemes(), rollouts())
def test_every_result_is_finite(spec: AdvantageScheme, batch: Rollouts) -> None:
    assert np.isfinite(compute_advantages(spec, episodes_of(batch)).advantages_N).all()


@given(any_groups)
def test_a_group_does_not_see_the_others(batch: list[list[float]]) -> None:
    spec = scheme(mean(singleton="raw"), std(eps=1e-6))
    alone = [advantages_of(spec, [g]) for g in batch]
    assert advantages_of(spec, batch).tobytes() == np.concatenate(alone).tobytes()


@given(rollouts(), st.integers(2, 4))
def test_roles_of_a_group_are_groups_of_their_own(batch: Rollouts, roles: int) -> None:
    """Ragged: a group of n tasks with r roles is r groups of any sizes."""
    spec = scheme(mean("role", "raw"), std("role", eps=1e-6))
    as_groups = scheme(mean(singleton="raw"), std(eps=1e-6))
    merged = [(r, t, g * roles + role, e, 0) for r, t, g, e, role in batch]
    assert bits(compute_advantages(spec, episodes_of(batch))) == bits(
        compute_advantages(as_groups, episodes_of(merged))
    )


@given(st.lists(st.integers(-3, 3) | st.integers(-(2**40), 2**40) | st.integers(0, 2**20)))
def test_labels_are_sorted_and_ties_stay_in_order(labels: list[int]) -> None:
    label_V = np.array(labels, dtype=np.int64)
    order_V = stable_order(label_V)
    expected = np.argsort(label_V, kind="stable")
    assert (order_V is None) == (sorted(labels) == labels)
    np.testing.assert_array_equal(np.arange(len(labels)) if order_V is None else order_V, expected)


def test_a_large_shuffled_batch_changes_no_bit() -> None:
    rng = np.random.default_rng(0)
    size = 20_000
    rewards, tokens = rng.normal(size=size), rng.integers(1, 500, size)
    labels, one = np.repeat(np.arange(size // 8), 8), np.ones(size, dtype=np.int64)
    order = rng.permutation(size)
    spec = scheme(*grpo().steps, *REINFORCE_PP_BASELINE.steps)
    straight = compute_advantages(spec, Episodes(rewards, tokens, one, labels, labels % 3))
    shuffled = compute_advantages(
        spec, Episodes(rewards[order], tokens[order], one, labels[order], labels[order] % 3)
    )
    assert shuffled.advantages_N.tobytes() == straight.advantages_N[order].tobytes()
