"""The results of an evaluation from its episodes."""

from __future__ import annotations

import pytest
from attrs import evolve

from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan
from rlc.plan.parts import MetricPlan, ModelPlan, SamplingPlan
from rlc.plan.stages import Evaluation
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.stages.evaluation import evaluation_metrics

TURN = Turn([1], [2], [-0.1], "", "", 1.0, "stop")


def env(name: str) -> EnvPlan:
    policy = RolloutsPlan(4, 1.0, 8, None, None)
    return EnvPlan(name, 1.0, "gem", name, {}, (), 1, policy, RewardPlan("turns", None, None, None))


def plan(*metrics: MetricPlan, envs: str = "a") -> Evaluation:
    model = ModelPlan("m", "tiny", 4, True, True, True, None, "r", None, "local")
    sampling = SamplingPlan(8)
    places = tuple(env(name) for name in envs)
    return Evaluation("e", model, None, places, 2, 4, sampling, metrics, None, False)


def played(name: str, task: int, rewards: list[float | None]) -> list[Rollout]:
    """The samples of one task; None failed."""
    return [
        Rollout(name, task, m, "", (), "failed", (), "cause")
        if reward is None
        else Rollout(name, task, m, "", (TURN,), "done", (reward,))
        for m, reward in enumerate(rewards)
    ]


ROLLOUTS = [*played("a", 0, [0.0, 1.0, 0.5, 0.0]), *played("a", 1, [0.0, 0.0, 0.0, 0.0])]


def test_pass_at_k_is_unbiased_and_any_at_k_looks_at_the_first_k() -> None:
    metrics = (MetricPlan("pass_at", 2), MetricPlan("any_at", 1), MetricPlan("any_at", 2))
    found = evaluation_metrics(plan(*metrics), ROLLOUTS)
    assert found["eval/e/pass@2"] == pytest.approx((3 / 6) / 2)  # of 6 pairs 3 have the solution
    assert found["eval/e/any@1"] == 0
    assert found["eval/e/any@2"] == 0.5


def test_a_failed_episode_solves_nothing_and_has_no_reward() -> None:
    metrics = (MetricPlan("pass_at", 1), MetricPlan("mean_reward", None))
    found = evaluation_metrics(plan(*metrics), played("a", 0, [None, 1.0, 0.5, None]))
    assert found == {
        "eval/e/pass@1": 0.25,
        "eval/e/mean_reward": 0.75,
        "eval/e/failed": 2.0,
        "eval/e/cut_off": 0.0,
    }


def test_what_was_cut_off_or_could_not_be_read_is_told_from_what_is_wrong() -> None:
    found = [
        Rollout("a", 0, m, "", (evolve(TURN, stop_reason=stop, metrics=read),), "done", (0.0,))
        for m, (stop, read) in enumerate(
            [("stop", {"format": 1.0}), ("length", {"format": 0.0}), ("stop", {"format": 1.0})]
        )
    ]
    metrics = evaluation_metrics(plan(MetricPlan("pass_at", 1)), found)
    assert metrics["eval/e/pass@1"] == 0
    assert metrics["eval/e/format"] == pytest.approx(2 / 3)
    assert metrics["eval/e/cut_off"] == pytest.approx(1 / 3)
    assert metrics["eval/e/env/a/format"] == pytest.approx(2 / 3)


def test_a_mixture_has_the_results_of_each_environment_too() -> None:
    rollouts = [*played("a", 0, [1.0] * 4), *played("b", 0, [0.0] * 4)]
    found = evaluation_metrics(plan(MetricPlan("pass_at", 1), envs="ab"), rollouts)
    assert found["eval/e/pass@1"] == 0.5
    assert (found["eval/e/a/pass@1"], found["eval/e/b/pass@1"]) == (1.0, 0.0)


def test_nothing_is_reported_where_nothing_was_measured() -> None:
    found = evaluation_metrics(plan(MetricPlan("mean_reward", None)), played("a", 0, [None] * 4))
    assert found == {"eval/e/failed": 4.0}
