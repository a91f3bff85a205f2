"""What each update is trained on: penalties, weights, even parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import tiny, train

from rlc.plan.stages import PolicyGradient, Rollouts, Training
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.tokens import Scores
from rlc.runtime.updates.datums import EpisodeDatums, Minibatch, minibatches, rollout_datums


def stage(**fields: str) -> Training:
    (plan,) = tiny(train(**fields)).stages
    assert isinstance(plan, Training)
    return plan


def episode(task: int, tokens: int, advantage: float, **settings: Any) -> EpisodeDatums:
    """A rollout of one turn, with a prompt of two tokens."""
    turn = Turn([1, 2], list(range(3, 3 + tokens)), [-0.5] * tokens, "", "", 0.0, "stop")
    rollout = Rollout("env", task, 0, "", (turn,), "done", (0.0,))
    reference = settings.get("reference")
    scored = {} if reference is None else {"reference": [Scores.of_tokens([0.0, *reference])]}
    (made,) = rollout_datums([rollout], [np.array([advantage])], [np.array([True])], [scored])
    return made


def made_of(plan: Training, episodes: list[EpisodeDatums]) -> list[Minibatch]:
    return minibatches(plan.of(PolicyGradient), plan.of(Rollouts).batch.updates, episodes)


def advantages(minibatch: Minibatch) -> list[list[float]]:
    """Of the sampled tokens of each datum."""
    return [datum.advantages_T[datum.mask_T].tolist() for datum in minibatch.datums]


def test_by_default_nothing_is_weighted() -> None:
    (made,) = made_of(stage(), [episode(0, 2, 0.5), episode(1, 1, -1.0)])
    assert advantages(made) == [[0.5, 0.5], [-1.0]]


def test_weights_of_the_aggregation_are_folded_into_the_advantages() -> None:
    plan = stage(aggregate="seq_mean_token_mean()")
    (made,) = made_of(plan, [episode(0, 4, 1.0), episode(0, 1, 1.0)])
    assert advantages(made) == [[0.125] * 4, [0.5]]


def test_a_sequence_without_an_advantage_is_not_sent_but_counts() -> None:
    plan = stage(aggregate="seq_mean_token_sum()")
    (made,) = made_of(plan, [episode(0, 2, 0.0), episode(0, 2, 1.0)])
    assert advantages(made) == [[0.5, 0.5]]


def test_a_quadratic_loss_gets_them_all_and_its_pull_is_scaled_too() -> None:
    plan = stage(loss="dro(beta = 0.5)", aggregate="seq_mean_token_sum()")
    (made,) = made_of(plan, [episode(0, 2, 0.0), episode(0, 2, 1.0)])
    assert len(made.datums) == 2
    assert made.loss_config == {"beta": 0.25}


def test_a_pull_of_the_service_is_left_to_it() -> None:
    (made,) = made_of(stage(loss="stable_reinforce()"), [episode(0, 2, 1.0)])
    assert made.loss_config == {}
    with pytest.raises(AssertionError, match="RL0314") as refusal:
        stage(loss="stable_reinforce()", aggregate="token_mean()")
    assert "give `kl_coeff`, which is the service's own here" in str(refusal.value)


def test_the_penalty_moves_credit_to_tokens_nearer_the_reference() -> None:
    """log q is -0.5 everywhere; d is 0.5 where the reference has -1, 0 where it agrees."""
    plan = stage(kl='reference("tiny", coef = 2.0)')
    (made,) = made_of(plan, [episode(0, 2, 0.0, reference=[-1.0, -0.5])])
    assert advantages(made) == [pytest.approx([2 * (0.25 - 0.5), 2 * 0.25])]


def test_a_loss_of_recorded_sequences_is_cut_where_no_prompt_names_a_token() -> None:
    """A chat of three turns, of which the last is not trained on and is cut off; a
    discounted penalty leaves the tokens between the replies alone."""
    plan = stage(
        loss="stable_reinforce(kl_coeff = 0.1)", kl='reference("tiny", coef = 2.0, discount = 0.9)'
    )
    turns = tuple(
        Turn(list(range(3 * n + 2)), [3 * n + 2], [-0.5], "", "", 0.0, "stop", sequence_id=f"s{n}")
        for n in range(3)
    )
    rollout = Rollout("env", 0, 0, "", turns, "done", (0.0,) * 3)
    reference = {"reference": [Scores.of_tokens(np.linspace(-2, 0, 8))]}
    chosen = np.array([True, True, False])
    episodes = rollout_datums([rollout], [np.array([0.5, -1.0, 2.0])], [chosen], [reference])
    (made,) = made_of(plan, episodes)
    (datum,) = made.datums
    assert datum.inputs == [0, 1, 2, 3, 4]
    assert datum.mask_T.tolist() == [False, True, False, False, True]
    assert datum.advantages_T.astype(bool).tolist() == datum.mask_T.tolist()
    assert [reply.sequence_id for reply in datum.replies] == ["s0", "s1"]


def test_the_penalty_comes_before_the_weights() -> None:
    plan = stage(kl='reference("tiny", coef = 2.0)', aggregate="token_mean()")
    (made,) = made_of(plan, [episode(0, 2, 1.0, reference=[-1.0, -0.5])])
    assert advantages(made) == [pytest.approx([(1 - 0.5) / 2, (1 + 0.5) / 2])]


def test_updates_without_anything_to_learn_are_left_out() -> None:
    plan = stage(batch="groups(4, group_size = 4, updates = 4)")
    made = made_of(plan, [episode(0, 1, 0.0), episode(1, 1, 2.0)])
    assert [advantages(minibatch) for minibatch in made] == [[[2.0]]]
    assert made_of(plan, []) == []


PLANS = {
    updates: stage(batch=f"groups(5, group_size = 4, updates = {updates})")
    for updates in range(1, 6)
}


@given(st.lists(st.integers(1, 4), min_size=1, max_size=9), st.integers(1, 5))
def test_groups_stay_together_and_parts_are_even(sizes: list[int], updates: int) -> None:
    plan = PLANS[updates]
    episodes = [episode(task, 1, 1.0 + task) for task, n in enumerate(sizes) for _ in range(n)]
    made = [{row[0] for row in advantages(m)} for m in made_of(plan, episodes)]
    assert sorted(value for part in made for value in part) == [1.0 + t for t in range(len(sizes))]
    counts = [len(part) for part in made]
    assert max(counts) - min(counts) <= 1
    assert len(made) == min(updates, len(sizes))
