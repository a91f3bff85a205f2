"""Tokens and dollars before anything runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_recipes import EVERYTHING, planned, recipe

from rlc.catalog.prices import price_of
from rlc.plan.cost import (
    LEVELS,
    Episode,
    History,
    Tokens,
    batch_tokens,
    plan_cost,
    priced,
    stage_cost,
    total_cost,
)
from rlc.plan.tree import BatchPlan

QWEN = price_of("Qwen/Qwen3-8B", "tinker")


def test_the_worked_example_of_a_single_turn_step() -> None:
    batch = BatchPlan("groups", 64, 16, None)
    tokens = batch_tokens(batch, Episode(150, 0, 1, 2048, "latest"), cached=False)
    assert tokens == Tokens(prefill=153_600, cached=0, sample=2_097_152, train=2_250_752)
    estimate = priced(tokens, QWEN)
    assert estimate.dollars["sample"] == pytest.approx(1.2583, abs=5e-5)
    assert estimate.dollars["train"] == pytest.approx(0.9903, abs=5e-5)
    assert estimate.total == pytest.approx(2.2786, abs=5e-5)


def test_a_group_shares_its_prompt() -> None:
    batch = BatchPlan("groups", 64, 16, None)
    tokens = batch_tokens(batch, Episode(150, 0, 1, 2048, "latest"), cached=True)
    assert (tokens.prefill, tokens.cached) == (64 * 150, 64 * 15 * 150)


P, O, T, R = 100, 20, 5, 30  # noqa: E741  (prompt, observation, turns, reply)


@pytest.mark.parametrize(
    ("history", "prefill", "fresh", "train"),
    [
        ("chat", T * P + 10 * (R + O), P + 4 * (R + O), P + T * R + 4 * O),
        ("concat", T * P + 10 * O, P + 4 * O, T * P + 10 * O + T * R),
        ("latest", P + 4 * O, P + 4 * O, P + 4 * O + T * R),
    ],
)
def test_the_tokens_of_an_episode(history: History, prefill: int, fresh: int, train: int) -> None:
    one = BatchPlan("groups", 1, 1, None)
    episode = Episode(P, O, T, R, history)
    assert batch_tokens(one, episode, cached=False) == Tokens(prefill, 0, T * R, train)
    assert batch_tokens(one, episode, cached=True) == Tokens(fresh, prefill - fresh, T * R, train)


def test_turns_are_played_in_waves_and_only_the_chosen_are_trained_on() -> None:
    batch = BatchPlan("turns", 100, 1, 16)
    episode = Episode(P, O, T, R, "concat")
    tokens = batch_tokens(batch, episode, cached=True)
    assert tokens.sample == 2 * 16 * T * R  # two waves of 16 × 5 turns
    assert tokens.train == pytest.approx(100 * (T * P + 10 * O + T * R) / T)
    worst = batch_tokens(batch, episode, cached=False)
    assert worst.sample == pytest.approx((99 + 16 * T) * R)


@given(
    st.builds(
        Episode,
        prompt=st.integers(1, 5000),
        observation=st.integers(0, 500),
        turns=st.integers(1, 30),
        reply=st.integers(1, 4000),
        history=st.sampled_from(["chat", "concat", "latest"]),
    ),
    st.builds(BatchPlan, st.just("groups"), st.integers(1, 64), st.integers(1, 16), st.none()),
)
def test_a_cache_moves_tokens_and_loses_none(episode: Episode, batch: BatchPlan) -> None:
    with_cache = batch_tokens(batch, episode, cached=True)
    without = batch_tokens(batch, episode, cached=False)
    assert with_cache.prefill + with_cache.cached == pytest.approx(without.prefill)
    assert (with_cache.sample, with_cache.train) == (without.sample, without.train)
    assert 0 < with_cache.prefill <= without.prefill


def test_low_is_below_expected_is_below_high() -> None:
    for stage in plan_cost(planned(EVERYTHING)):
        low, expected, high = (stage.total(level) for level in LEVELS)
        assert low is not None
        assert expected is not None
        assert high is not None
        assert 0 < low < expected < high


def test_a_stage_on_this_machine_is_free() -> None:
    cost = stage_cost(planned(recipe("quickstart")).stages[0])
    assert cost.free
    assert [cost.total(level) for level in LEVELS] == [0.0, 0.0, 0.0]


def test_an_unknown_price_makes_the_total_unknown() -> None:
    lightning = "nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B-BF16"
    costs = plan_cost(planned(recipe("sudoku"), f'policy.base="{lightning}"', "main.budget=$1"))
    assert costs[0].step["high"].dollars["train"] is None
    assert costs[0].step["high"].dollars["sample"] is not None
    assert total_cost(costs, "high") is None


@pytest.mark.parametrize(("recipe_name", "datum"), [("quickstart", "episode"), ("sudoku", "turn")])
def test_a_chat_is_one_sequence_and_a_template_one_a_turn(recipe_name: str, datum: str) -> None:
    assert stage_cost(planned(recipe(recipe_name)).stages[0]).datum == datum
