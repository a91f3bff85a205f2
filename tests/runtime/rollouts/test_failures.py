"""Failed rollouts: what they cost the others, in a run with an environment that fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import frozen
from run_support import TINY, compiled, metrics, rollouts, run_new, train

from rlc.chat.turns import Observation
from rlc.envs.base import Episode
from rlc.envs.gem.guess import GuessSource
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan
from rlc.plan.records import Plan
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.stages.computation import trainable_rollouts

TURN = Turn([1], [2], [-0.1], "", "", 1.0, "stop")


def env(max_failures: int | None) -> EnvPlan:
    policy = RolloutsPlan(3, 1.0, 8, max_failures, None)
    reward = RewardPlan("turns", None, None, None)
    return EnvPlan("e", 1.0, "gem", "e", {}, (), 1, policy, reward)


def group(task: int, failures: int, credit: tuple[float, ...] = ()) -> list[Rollout]:
    """Three rollouts of one task, of which the first ones failed."""
    bad = [Rollout("e", task, m, "", (), "failed", credit, "cause") for m in range(failures)]
    good = [Rollout("e", task, m, "", (TURN,), "done", (1.0,)) for m in range(failures, 3)]
    return bad + good


@pytest.mark.parametrize(
    ("max_failures", "left"), [(None, [3, 2, 1]), (2, [3, 2, 1]), (1, [3, 2]), (0, [3])]
)
def test_a_group_with_more_failures_than_allowed_is_left_out(
    max_failures: int | None, left: list[int]
) -> None:
    played = [rollout for task in range(3) for rollout in group(task, task)]
    kept = trainable_rollouts(played, [env(max_failures)])
    assert [sum(r.task == task for r in kept) for task in range(3)] == left + [0] * (3 - len(left))


def test_failures_with_a_reward_count_but_still_are_failures() -> None:
    played = group(0, 1, (-1.0,)) + group(1, 2, (-1.0,))
    assert len(trainable_rollouts(played, [env(None)])) == 6
    assert {rollout.task for rollout in trainable_rollouts(played, [env(1)])} == {0}


@frozen
class Crashing:
    episode: Episode

    @property
    def first(self) -> Observation:
        return self.episode.first

    def step(self, action: str) -> Observation:
        if action.rstrip("}")[-1:] in "02468":
            raise OSError("an even number")
        return self.episode.step(action)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The game crashes on a guess of an even number."""
    group_of = GuessSource.group

    def group(self: GuessSource, seed: int, size: int) -> list[Episode]:
        return [Crashing(episode) for episode in group_of(self, seed, size)]

    monkeypatch.setattr(GuessSource, "group", group)


def job(on_error: str, rollout_settings: str = "") -> Plan:
    env = 'env game = gem("game:GuessTheNumber-v0-easy") |> chat()' + rollout_settings + "\n"
    return compiled(TINY + env + train(env="game", on_error=on_error, steps="1"))


@pytest.mark.plain
@pytest.mark.usefixtures("failing")
def test_dropped_rollouts_leave_no_trace_in_the_statistics(tmp_path: Path) -> None:
    run_new(tmp_path / "run", job("drop"))
    (record,) = metrics(tmp_path / "run")
    played = rollouts(tmp_path / "run")
    failed = [rollout for rollout in played if rollout["error"]]
    assert {rollout["error"] for rollout in failed} == {"OSError: an even number"}
    assert record["rollouts/failed"] == record["failed/game"] == len(failed) > 0
    assert record["failures/OSError"] == len(failed)
    rewards = [rollout["reward"] for rollout in played if not rollout["error"]]
    assert record["reward/mean"] == pytest.approx(sum(rewards) / len(rewards))
    assert all(rollout["advantages"] == [] for rollout in failed)


@pytest.mark.plain
@pytest.mark.usefixtures("failing")
def test_penalised_rollouts_are_trained_on(tmp_path: Path) -> None:
    run_new(tmp_path / "run", job("penalise(-1.0)"))
    (record,) = metrics(tmp_path / "run")
    failed = [rollout for rollout in rollouts(tmp_path / "run") if rollout["error"]]
    assert {rollout["reward"] for rollout in failed} == {-1.0}
    played_on = [rollout for rollout in failed if rollout["turns"]]
    assert played_on
    for rollout in played_on:
        assert len(rollout["advantages"]) == len(rollout["turns"])
        assert rollout["advantages"][0] <= 0  # 0 where the whole group failed
    assert any(rollout["advantages"][0] < 0 for rollout in played_on)
    assert record["reward/mean"] < 0.5


@pytest.mark.plain
@pytest.mark.usefixtures("failing")
def test_a_step_whose_groups_are_all_left_out_updates_nothing(tmp_path: Path) -> None:
    run_new(tmp_path / "run", job("drop", " |> rollouts(group_size = 8, max_failures = 0)"))
    (record,) = metrics(tmp_path / "run")
    assert record["optim/skipped"] == 1
    assert record["rollouts/played"] > 0


@pytest.mark.plain
@pytest.mark.usefixtures("failing")
def test_a_run_that_is_to_stop_stops_with_the_cause(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="a rollout of `game` failed: OSError: an even number"):
        run_new(tmp_path / "run", job("stop"))
    assert json.loads((tmp_path / "run" / "plan.json").read_text())["stages"][0]["name"] == "main"
