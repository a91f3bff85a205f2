"""The pieces of scripts compute what rlc computes."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlc.emit.pieces.budget import Budget
from rlc.emit.pieces.seeds import stream

from rlc.algo.advantages import compute_advantages
from rlc.algo.aggregate import SHARED_BY, aggregate_weights
from rlc.algo.episodes import Episodes
from rlc.algo.schedules import learning_rate
from rlc.algo.scheme import AdvantageScheme, Baseline, Returns, Scale
from rlc.emit.pieces import advantages, aggregate, schedules
from rlc.emit.pieces.records import Env, Episode, Turn, Usage
from rlc.seeds import derive_seed

counts = st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=3), min_size=1, max_size=6)
rates = st.floats(1e-6, 1e-1)
# Rewards that come in a few values, so that groups of equals are likely.
rewards = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0, -0.2]), min_size=1, max_size=3),
    min_size=1,
    max_size=8,
)


@given(st.integers(0, 2**62), st.lists(st.one_of(st.integers(0, 99), st.text(max_size=5))))
def test_streams_are_those_of_a_run(seed: int, names: list[str | int]) -> None:
    assert stream(seed, *names) == derive_seed(seed, *names)


@given(counts, st.integers(1, 100))
def test_aggregations_weigh_as_the_plan_says(tokens: list[list[int]], length: int) -> None:
    own = [sum(one) for one in tokens]
    for kind, shared in SHARED_BY.items():
        piece: Any = getattr(aggregate, kind, None)
        if piece is None:
            assert shared in (None, "task")  # written without one, or refused
            continue
        given_length = length if kind.endswith("norm") else None
        expected = aggregate_weights(kind, own, list(range(len(own))), given_length)
        made = piece(tokens, length) if given_length else piece(tokens)
        np.testing.assert_allclose(made, expected, rtol=1e-12)


@given(rates, st.integers(1, 30), st.integers(0, 30), st.floats(0, 1), st.data())
def test_learning_rates_are_those_of_a_run(
    rate: float, steps: int, warmup: int, floor: float, data: st.DataObject
) -> None:
    step = data.draw(st.integers(1, steps))
    for kind in ("linear", "cosine"):
        made = getattr(schedules, kind)(rate, step, steps, warmup, floor)
        assert made == pytest.approx(learning_rate(kind, rate, step, steps, warmup, floor))
    constant = learning_rate("constant", rate, step, steps, warmup)
    assert schedules.warmed_up(rate, step, warmup) == constant


@given(rewards, st.floats(0, 1), st.randoms(use_true_random=False))
def test_steps_of_schemes_are_those_of_rlc(
    played: list[list[float]], gamma: float, draw: random.Random
) -> None:
    """Returns by turn, then each baseline and the spread, over groups that are drawn."""
    groups = [draw.randrange(3) for _ in played]
    tokens = [[draw.randrange(1, 9) for _ in own] for own in played]
    values, owner = advantages.turn_returns(played, gamma)
    keep = np.ones(len(values), dtype=bool)
    peers = advantages.scopes(groups, owner, keep)
    weights = np.array([n for own in tokens for n in own], dtype=np.float64)
    episodes = Episodes.from_rollouts(played, tokens, groups, [0] * len(played))
    pieces: dict[Literal["mean", "leave_one_out"], Any] = {
        "mean": advantages.less_mean,
        "leave_one_out": advantages.less_others,
    }
    for kind, piece in pieces.items():
        baseline = Baseline(kind, "group", "tokens", "zero")
        scale = Scale("std", "group", "tokens", 0, 1e-6, "outside")
        scheme = AdvantageScheme("one", Returns("turn", gamma), (baseline, scale), "keep")
        expected = compute_advantages(scheme, episodes).by_rollout()
        made = advantages.over_deviation(
            piece(values, weights, peers), weights, peers, ddof=0, eps=1e-6
        )
        turns = [len(own) for own in played]
        for mine, theirs in zip(advantages.by_episode(made, owner, turns), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-9)


def test_a_group_of_equals_gives_exact_zeros() -> None:
    values = np.array([0.1, 0.1, 0.1, 0.7])
    peers = [np.array([0, 1, 2]), np.array([3])]
    one_each = np.ones(4)
    for piece in (advantages.less_mean, advantages.less_others):
        assert piece(values, one_each, peers).tolist() == [0.0] * 4
        assert piece(values, one_each, peers, raw=True).tolist() == [0.0, 0.0, 0.0, 0.7]
    assert advantages.varied(values, peers).tolist() == [False, False, False, True]


@pytest.mark.engine
def test_waves_end_once_as_many_replies_are_lost_as_turns_are_due() -> None:
    """Of four episodes one has a turn, and the others lose a reply each."""
    from rlc.emit.pieces.rollouts import play_turns

    class Failing:
        asked = 0

        async def play(self, env: Env, number: int) -> list[Episode]:
            self.asked += 1
            turn = Turn([1], [2], [0.0], 1.0, "")
            return [] if number % 4 else [Episode(env.name, number, [turn])]

    player: Any = Failing()
    env = Env("one", "", {}, weight=1.0, group=1, temperature=1.0, max_tokens=1)
    played = asyncio.run(play_turns(player, [env], {"one": 0}, 12, wave=4))
    assert (len(played), player.asked) == (4, 16)


def test_a_budget_ends_before_the_step_that_would_exceed_it() -> None:
    usage, budget = Usage(), Budget(usd=2.5, prices=(0, 0, 1e6, 0), tokens=100)
    spent = []
    for _ in range(4):
        usage.sampled += 1  # a dollar
        spent.append(budget.is_spent(usage))
    assert spent == [False, True, True, True]
    now = SimpleNamespace(counts=lambda: [60, 0, 0, 0])
    assert Budget(tokens=100).is_spent(now)  # type: ignore[arg-type]
    assert not Budget(tokens=120).is_spent(now)  # type: ignore[arg-type]


@pytest.mark.engine
@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 40))
def test_tasks_come_in_the_order_of_a_run(weights: list[int], count: int) -> None:
    from rlc.emit.pieces.rollouts import draw
    from rlc.runtime.rollouts import tasks

    envs = [Env(f"e{i}", "", {}, float(w), 1, 1.0, 1) for i, w in enumerate(weights)]
    cursor = {env.name: 0 for env in envs}
    drawn = [(env.name, number) for env, number in draw(envs, cursor, count)]
    theirs = tasks.new_cursor([env.name for env in envs])
    assert drawn == tasks.draw({env.name: env.weight for env in envs}, theirs, count)
    assert cursor == {name: theirs[name] for name in cursor}
