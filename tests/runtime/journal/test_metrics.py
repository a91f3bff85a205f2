"""The numbers of a step: what they count, and that a step without any has no made-up ones."""

from __future__ import annotations

from typing import Any

import pytest
from run_support import tiny, train
from stage_parts import flat

from rlc.plan.stages import Training
from rlc.runtime.journal.metrics import rollout_metrics, rollout_record
from rlc.runtime.records import Rollout, Turn


def rollout(task: int, reward: float, tokens: int = 3, env: str = "guess", **more: Any) -> Rollout:
    turn = Turn([1, 2], [3] * tokens, [0.0] * tokens, "what?", "this", reward, "stop")
    known: dict[str, Any] = {"turns": (turn,), "credit": (reward,), "ended": "done"}
    return Rollout(env=env, task=task, member=0, digest="", **known | more)


def failed(cause: str) -> Rollout:
    return rollout(9, 0.0, turns=(), credit=(), error=f"{cause}: oh", cause=cause, ended="failed")


def numbers(*rollouts: Rollout) -> dict[str, float]:
    (stage,) = tiny(train()).stages
    assert isinstance(stage, Training)
    return rollout_metrics(rollouts, flat(stage).envs)


def test_groups_are_mixed_or_all_solved_or_all_alike_below() -> None:
    groups = {0: (1.0, 1.0), 1: (0.0, 0.0), 2: (0.0, 1.0), 3: (0.5, 0.5)}
    metrics = numbers(*(rollout(task, r) for task, rewards in groups.items() for r in rewards))
    assert metrics["groups/all_good"] == 0.25
    assert metrics["groups/all_bad"] == 0.5
    assert metrics["groups/constant"] == 0.75


def test_an_environment_has_reward_spread_turns_and_length() -> None:
    metrics = numbers(rollout(0, 0.0, tokens=2), rollout(0, 1.0, tokens=6))
    assert metrics["reward/guess"] == 0.5
    assert metrics["reward_std/guess"] == 0.5
    assert metrics["turns/guess"] == 1
    assert metrics["length/guess"] == 4
    assert not any("spell" in key for key in metrics)


def test_failures_are_counted_by_cause_and_enter_nothing_else() -> None:
    metrics = numbers(rollout(0, 1.0), failed("EnvError"), failed("EnvError"), failed("Deadline"))
    assert metrics["failures/EnvError"] == 2
    assert metrics["failures/Deadline"] == 1
    assert metrics["rollouts/failed"] == 3
    assert metrics["reward/mean"] == 1.0


def test_the_seconds_of_an_episode_are_a_mean_by_kind() -> None:
    first = rollout(0, 1.0, seconds={"sampling": 3.0, "environment": 1.0})
    metrics = numbers(first, rollout(0, 0.0, seconds={"sampling": 1.0}))
    assert metrics["time/episode/sampling"] == pytest.approx(2.0)
    assert metrics["time/episode/environment"] == pytest.approx(0.5)


def test_a_record_has_what_was_shown_said_and_waited_for() -> None:
    record = rollout_record("main", 2, rollout(7, 1.0, seconds={"sampling": 2.0}), [0.5])
    assert record["turns"][0]["observation"] == "what?"
    assert record["turns"][0]["action"] == "this"
    assert record["seconds"] == {"sampling": 2.0}
    assert record["advantages"] == [0.5]
    assert (record["stage"], record["step"], record["task"]) == ("main", 2, 7)
