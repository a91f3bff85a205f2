"""Runs with advantages of a recipe's own: they learn, and go on as they were after a kill."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from plan_recipes import planned, recipe
from run_support import assert_resumes, metrics, run_new

from rlc.runtime.records import Rollout
from rlc.runtime.stages.computation import RunningAverage

pytestmark = [pytest.mark.plain, pytest.mark.slow]

BRIEF = """
advantage mine(eps = 1e-6) {
  total   = sum(reward)
  right   = where(total >= 1, 1, 0)
  usual   = mean(length, over = group, weight = right)
  excess  = clip((length - usual) / max(usual, 1), -1, 1)
  paid    = total - 0.2 * mean(right, over = group) * right * excess
  centred = paid - mean(paid, over = others)
  episode = centred / (std(paid, over = batch) + eps)
}
"""
AVERAGES = """
advantage mine() {
  total   = sum(reward)
  spread  = running(total * total, 0.8) - running(total, 0.8) * running(total, 0.8)
  episode = (total - running(total, 0.8)) / sqrt(max(spread, 0.01))
}
"""


FAST = "main.batch=groups(4, group_size = 8)", "main.optimizer=adam(3e-3)", "main.steps=8"


@pytest.mark.engine
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_it_learns(tmp_path: Path, seed: int) -> None:
    plan = planned(recipe("quickstart") + BRIEF, "main.advantage=mine()", *FAST, seed=seed)
    run_new(tmp_path / "run", plan)
    rewards = [row["reward/mean"] for row in metrics(tmp_path / "run", "main")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1


def test_an_average_outlives_steps_without_its_environment() -> None:
    average = RunningAverage(at=0, decay=0.5, key="averages", lag=0)
    for step, env in enumerate(("guess", "spell"), start=1):
        played = [Rollout(env, 0, 0, "", (), "done", (1.0,))]
        one: Any = SimpleNamespace(
            observed={0: np.array([3.0])}, kept_R=np.array([True]), turns_R=np.array([1])
        )
        average.add(step, played, one)
    first, second = average.after(1), average.after(2)
    assert first.keys() == {"guess"}
    assert second.keys() == {"guess", "spell"}
    assert second["guess"] == first["guess"] > 0


@pytest.mark.parametrize("overlap", ["synchronous()", "asynchronous(max_staleness = 2)"])
def test_its_moving_averages_go_on_as_they_were(tmp_path: Path, overlap: str) -> None:
    plan = planned(
        recipe("quickstart") + AVERAGES,
        "main.advantage=mine()",
        "main.batch=groups(4, group_size = 2)",
        "main.loss=ppo()",
        "main.steps=5",
        f"main.overlap={overlap}",
    )
    assert_resumes(plan, ("main", 3), tmp_path / "run")
    first, *_, last = metrics(tmp_path / "run", "main")
    assert 0 < first["baseline/guess"] != last["baseline/guess"]


# Of each token: what the reference thinks of it is taken off, and what follows counts.
PENALISED = """
advantage mine(beta = 0.02, gamma = 1.0) {
  at_end = where(position == tokens, reward, 0)
  togo   = discounted(at_end - beta * (logq - ref), gamma)
  token  = togo - mean(first(togo), over = group)
}
"""
REFERENCE = "main.kl=reference(policy.base, coef = 0)"


@pytest.mark.engine
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_tokens_with_an_advantage_of_their_own_learn(tmp_path: Path, seed: int) -> None:
    changes = "main.advantage=mine()", REFERENCE, *FAST
    run_new(tmp_path / "run", planned(recipe("quickstart") + PENALISED, *changes, seed=seed))
    rewards = [row["reward/mean"] for row in metrics(tmp_path / "run", "main")]
    assert sum(rewards[-3:]) / 3 > sum(rewards[:3]) / 3 + 0.1
