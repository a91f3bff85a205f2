"""Rewards that compare the members of a group, in whole runs: what is trained on and written."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from run_support import TINY, assert_resumes, compiled, metrics, rollouts, run_new, train

from rlc.plan.environments import RewardPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Rollouts, Training
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.credit import credited, shaped_in_group

pytestmark = pytest.mark.plain

SHAPE = "total - 0.01 * (tokens - mean(tokens, over = group)) - 0.1 * rank(tokens, over = group)"
EVAL = "eval held { model = main  env = mine  tasks = 3  samples = 3  metrics = [mean_reward()] }\n"


def job(shape: str, more: str = "", **fields: str) -> Plan:
    """A stage that guesses numbers, in episodes of different lengths."""
    env = f"env mine = guess |> reward({shape})\n"
    usual = {"env": "mine", "steps": "3", "advantage": "returns() |> baseline(mean, over = group)"}
    return compiled(TINY + env + train(**usual | fields) + more)


def groups(played: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The records of rollouts by task, those that failed left out."""
    found = defaultdict(list)
    for record in played:
        if record["error"] is None:
            found[record["stage"], record["step"], record["env"], record["task"]].append(record)
    return list(found.values())


def shaped(group: list[Mapping[str, Any]]) -> list[float]:
    """`SHAPE` by NumPy."""
    raw = np.array([record["raw_reward"] for record in group])
    tokens = np.array([sum(turn["tokens"] for turn in record["turns"]) for record in group])
    below, upto = ((tokens[:, None] > tokens).sum(1), (tokens[:, None] >= tokens).sum(1))
    return list(raw - 0.01 * (tokens - tokens.mean()) - 0.1 * (below + 1 + upto) / 2)


def test_the_reward_of_a_group_is_trained_on_and_written(tmp_path: Path) -> None:
    plan = job(SHAPE, EVAL)
    summary = run_new(tmp_path / "run", plan)
    played = groups(rollouts(tmp_path / "run"))
    assert {(group[0]["stage"], len(group)) for group in played} == {("main", 4), ("held", 3)}
    for group in played:
        assert [one["reward"] for one in group] == pytest.approx(shaped(group), abs=1e-12)
    first = metrics(tmp_path / "run")[0]
    mine = [one for group in played for one in group if (one["stage"], one["step"]) == ("main", 1)]
    assert first["reward/mine"] == pytest.approx(np.mean([one["reward"] for one in mine]))
    assert first["raw_reward/mine"] == pytest.approx(np.mean([one["raw_reward"] for one in mine]))
    for group in played:
        rewards = np.array([one["reward"] for one in group])
        if group[0]["stage"] == "main":
            advantages = [one["advantages"][-1] for one in group]
            assert advantages == pytest.approx(rewards - rewards.mean(), abs=1e-12)
    assert any(len({one["reward"] for one in group}) > 2 for group in played)
    (result,) = summary.evaluations
    held = [one["reward"] for group in played for one in group if one["stage"] == "held"]
    assert result.metrics["mean_reward"] == pytest.approx(np.mean(held))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {
            "overlap": "streamed(minibatches = 3)",
            "batch": "groups(3, group_size = 4, resample = 2)",
        },
        {"overlap": "asynchronous(max_staleness = 1)"},
    ],
    ids=["synchronous", "streamed", "asynchronous"],
)
def test_a_stopped_run_goes_on_as_it_would_have(fields: dict[str, str], tmp_path: Path) -> None:
    assert_resumes(job(SHAPE, EVAL, **fields), ("main", 2), tmp_path / "run")


def test_a_group_of_equal_shaped_rewards_is_replaced(tmp_path: Path) -> None:
    """Each reward is told apart by its length alone, and is the same where only it is compared."""
    batch = "groups(3, group_size = 4, resample = 2)"
    equal = job(
        "total - total + min(tokens, over = group) + mean(total, over = group)", batch=batch
    )
    run_new(tmp_path / "equal", equal)
    assert [one["resampled/mine"] for one in metrics(tmp_path / "equal")] == [2.0, 2.0, 2.0]


TURN = Turn([1], [2, 3], [-0.1, -0.1], "", "", 1.0, "stop")


def reward(shape: str) -> RewardPlan:
    stage = job(shape).stages[0]
    assert isinstance(stage, Training)
    return stage.of(Rollouts).envs[0].reward


def rollout(total: float | None, role: str = "") -> Rollout:
    turns = (evolve(TURN, reward=None), evolve(TURN, reward=total))
    return Rollout("e", 0, 0, "", turns, "done", (), role=role)


def test_who_failed_or_was_not_rewarded_is_not_compared() -> None:
    plan = reward("total - mean(total, over = group), high = 0.6")
    failed = evolve(rollout(9.0), ended="failed", credit=(0.0, -1.0), error="it broke")
    unplayed = evolve(rollout(9.0), turns=(), credit=(9.0,))
    unrewarded = credited(rollout(None), plan)
    solved, missed = (credited(rollout(total), plan) for total in (2.0, 0.0))
    group = shaped_in_group(plan, [failed, solved, unplayed, unrewarded, missed])
    assert [one.credit for one in group] == [(0.0, -1.0), (0.0, 0.6), (9.0,), (), (0.0, -1.0)]
    assert [one.raw for one in (group[1], group[4])] == [2.0, 0.0]
    assert group[1].solved
    assert not group[4].solved


def test_a_role_is_compared_with_its_like() -> None:
    plan = reward("total - mean(total, over = role)")
    played = [credited(rollout(t, role), plan) for t, role in ((1, "a"), (0, "b"), (0, "a"))]
    assert [one.reward for one in shaped_in_group(plan, played)] == [0.5, 0.0, -0.5]


def test_rewards_that_cannot_be_compared_fail_with_what_is_wrong(tmp_path: Path) -> None:
    plan = job(
        "(total + 1) / (max(tokens, over = group) - 1000 - (max(tokens, over = group) - 1000))"
    )
    with pytest.raises(RunError):
        run_new(tmp_path / "infinite", plan)
    lines = (tmp_path / "infinite" / "failures.jsonl").read_text().splitlines()
    errors = [json.loads(line)["error"] for line in lines]
    assert errors
    assert all(error.startswith("ShapedRewardError: the shaped reward is") for error in errors)
