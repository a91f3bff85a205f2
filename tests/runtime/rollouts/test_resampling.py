"""Groups of equals are replaced by other tasks: which, how many, and that it repeats."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import metrics, rollouts, run, run_new, tiny, train, undisturbed

from rlc.envs.build import PlayableEnv
from rlc.plan.environments import EnvPlan, RewardPlan, RolloutsPlan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.batches import PlannedGroups, is_constant, replaced_groups, whole
from rlc.runtime.rollouts.tasks import SPARES, Task
from rlc.runtime.stages.computation import trainable_rollouts

TURN = Turn([1], [2], [0.0], "", "", None, "stop")


def env(name: str, max_failures: int | None = None) -> EnvPlan:
    policy = RolloutsPlan(2, 1.0, 8, max_failures, None)
    return EnvPlan(name, 1.0, "gem", name, {}, (), 1, policy, RewardPlan("turns", None, None, None))


def task(name: str, number: int) -> Task:
    return Task(PlayableEnv(env(name), None, None), number, 2, 0)  # type: ignore[arg-type]


def group(of: Task, *rewards: float | None, role: str = "") -> list[Rollout]:
    name = of.env.plan.name
    return [
        Rollout(name, of.number, m, "", (), "failed", (), "cause", role)
        if reward is None
        else Rollout(name, of.number, m, "", (TURN,), "done", (reward,), None, role)
        for m, reward in enumerate(rewards)
    ]


def replaced(
    outcomes: Mapping[tuple[str, int], tuple[float | None, ...]], tasks: list[Task], spares: int
) -> tuple[list[Rollout], list[tuple[str, int]]]:
    """What is collected, and what is played, in order. Unlisted tasks are mixed."""
    order = []

    async def play(one: Task) -> list[Rollout]:
        order.append(key := (one.env.plan.name, one.number))
        return group(one, *outcomes.get(key, (0.0, 1.0)))

    return asyncio.run(whole(PlannedGroups(tasks, play, task, range(spares)))), order


def test_a_group_of_equals_gives_way_to_a_task_of_its_environment() -> None:
    tasks = [task("a", 500), task("b", 500), task("b", 501)]
    outcomes = {("b", 500): (1.0, 1.0), ("b", 501): (0.0, 0.0), ("b", 1): (0.5, 0.5)}
    rollouts, order = replaced(outcomes, tasks, spares=5)
    assert order == [
        *[("a", 500), ("b", 500), ("b", 501)],
        *[("b", 0), ("b", 1)],  # the first two spare ones, of which one is as bad
        ("b", 2),
    ]
    kept = trainable_rollouts(rollouts, [env("a"), env("b")])
    assert Counter(r.env for r in kept) == {"a": 2, "b": 4}


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.integers(0, 6))
def test_a_batch_keeps_its_size_and_spares_are_never_exceeded(
    mixed: list[bool], spares: int
) -> None:
    tasks = [task("a", 100 + n) for n in range(len(mixed))]
    outcomes = {("a", 100 + n): (0.0, 1.0) if good else (0.5, 0.5) for n, good in enumerate(mixed)}
    outcomes |= {("a", n): (0.0, float(n % 2)) for n in range(spares)}
    rollouts, order = replaced(outcomes, tasks, spares)
    kept = trainable_rollouts(rollouts, [env("a")])
    assert len({r.group for r in kept}) == len(tasks)
    assert len(order) - len(tasks) <= spares
    still = sum(is_constant([m for m in kept if m.group == g]) for g in {r.group for r in kept})
    if still:
        assert len(order) - len(tasks) == spares


def test_failures_are_left_to_the_failure_policy() -> None:
    assert not is_constant(group(task("a", 0), None, None))
    assert is_constant(group(task("a", 0), None, 0.5))
    rollouts, order = replaced({("a", 7): (None, None)}, [task("a", 7)], spares=3)
    assert order == [("a", 7)]
    assert not any(r.replaced for r in rollouts)


def test_a_role_that_differs_is_enough() -> None:
    of = task("a", 0)
    solvers = group(of, 0.0, 1.0, role="solver")
    assert not is_constant([*solvers, *group(of, 1.0, 1.0, role="judge")])
    assert is_constant([*group(of, 0.0, 0.0, role="solver"), *group(of, 1.0, 1.0, role="judge")])


def test_each_environment_counts_its_own() -> None:
    tasks = [task("a", 10), task("b", 10)]
    rollouts, _ = replaced({("b", 10): (1.0, 1.0)}, tasks, spares=2)
    assert replaced_groups(rollouts, ["a", "b"]) == {"resampled/a": 0, "resampled/b": 1}


BATCH = {"env": "spell", "batch": "groups(4, group_size = 2, resample = 4)", "loss": "ppo()"}


def key(record: dict[str, Any]) -> Any:
    actions = [turn["action"] for turn in record["turns"]]
    return record["step"], record["task"], record["member"], record["replaced"], actions


@pytest.mark.plain
@pytest.mark.parametrize(
    "overlap", ["synchronous()", "streamed(minibatches = 2)", "asynchronous(max_staleness = 1)"]
)
def test_a_resumed_run_replaces_the_same(tmp_path: Path, overlap: str) -> None:
    job = tiny(train(**BATCH, overlap=overlap))
    run_new(tmp_path / "parts", job, stop_after=("main", 3))
    folder = RunFolder.resume(tmp_path / "parts")
    folder.journal.drop_checkpoint("main", 3)  # as after a kill
    run(folder)
    whole, parts = rollouts(undisturbed(job)), rollouts(tmp_path / "parts")
    assert list(map(key, parts)) == list(map(key, whole))
    spare = {r["task"] for r in whole if r["task"] >= SPARES}
    counted = sum(step["resampled/spell"] for step in metrics(undisturbed(job)))
    assert len(spare) == counted > 0
    assert all(not r["advantages"] for r in whole if r["replaced"])
    ordinary = {r["task"] for r in whole if r["task"] < SPARES}
    assert ordinary == set(range(16))  # the cursor of the others goes on as ever


@pytest.mark.plain
def test_whatever_is_ready_is_replaced_too(tmp_path: Path) -> None:
    overlap = "streamed(minibatches = 2, order = ready)"
    run_new(tmp_path / "run", tiny(train(**BATCH, overlap=overlap)))
    played = rollouts(tmp_path / "run")
    spare = {r["task"] for r in played if r["task"] >= SPARES}
    counted = sum(step["resampled/spell"] for step in metrics(tmp_path / "run"))
    assert len(spare) == counted > 0
    assert {r["task"] for r in played if r["task"] < SPARES} == set(range(16))
    for step in range(1, 5):  # in the order of the tasks, whichever came first
        tasks = [r["task"] for r in played if r["step"] == step and r["task"] < SPARES]
        assert tasks == sorted(tasks)
