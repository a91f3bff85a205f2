"""The curriculum: which tasks are passed over, and that a resumed run passes over the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_support import (
    TINY,
    assert_same,
    comparable,
    compiled,
    metrics,
    rollouts,
    run,
    run_new,
    train,
    undisturbed,
)

from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.tasks import Curriculum, Lesson, WeightedTasks, solved_share

shares = st.dictionaries(st.integers(0, 9), st.sampled_from([0.0, 0.25, 0.5, 1.0]), max_size=10)


def curriculum(count: int = 10, explore: float = 0.0, **limits: float) -> Curriculum:
    return Curriculum(
        count, limits.get("hopeless", 0.0), limits.get("solved", 1.0), explore, seed=5
    )


def played(made: Curriculum, draws: int) -> list[int]:
    position, tasks = 0, []
    for _ in range(draws):
        at = made.next(position)
        tasks.append(at % made.count)
        position = at + 1
    return tasks


def test_what_was_never_played_is_played_in_order() -> None:
    assert played(curriculum(count=4), 8) == [0, 1, 2, 3, 0, 1, 2, 3]


@given(shares, st.integers(1, 40))
def test_solved_and_hopeless_tasks_are_passed_over(known: dict[int, float], draws: int) -> None:
    made = curriculum()
    made.learn(1, Lesson(known, {}))
    made.know(1)
    taught = [task for task in range(10) if 0 < known.get(task, 0.5) < 1]
    tasks = played(made, draws)
    if taught:
        assert set(tasks) <= set(taught)
        counts = Counter(tasks)
        assert all(abs(counts[task] - draws / len(taught)) < 1 for task in taught)
    else:
        assert tasks == [n % 10 for n in range(draws)]  # there is always something to play


def test_all_tasks_are_visited_again_where_some_are_explored() -> None:
    made = curriculum(count=6, explore=0.2)
    made.learn(1, Lesson(dict.fromkeys(range(5), 1.0), {}))  # only task 5 teaches
    made.know(1)
    counts = Counter(played(made, 600))
    assert set(counts) == set(range(6))
    rounds = counts[5]
    for task in range(5):
        assert 0.1 * rounds < counts[task] < 0.3 * rounds


def test_only_what_was_known_counts() -> None:
    """A step that is sampled from older weights does not know what came after them."""
    made = curriculum(count=3)
    made.learn(1, Lesson({0: 1.0}, {}))
    made.learn(2, Lesson({0: 0.5, 1: 0.0}, {}))
    made.know(0)
    assert played(made, 3) == [0, 1, 2]
    made.know(1)
    assert played(made, 3) == [1, 2, 1]
    made.know(2)  # task 0 is not solved any more
    assert played(made, 3) == [0, 2, 0]
    assert made.metrics() == {"known": 2 / 3, "hopeless": 1 / 3, "solved": 0.0}


def test_of_steps_that_are_known_at_once_the_last_counts() -> None:
    """As where steps overlap, or a run goes on."""
    seen = list[float]()

    def weights(history: Any) -> Any:
        seen.append(history["last_T"][0])
        return np.ones(3)

    weigh: Any = weights
    made = curriculum(count=3)
    for tasks in (made, WeightedTasks(3, 5, weigh)):
        tasks.learn(1, Lesson({0: 1.0}, {0: 1.0}))
        tasks.learn(2, Lesson({0: 0.5}, {0: 0.0}))
        tasks.know(2)
    assert 0 in played(made, 3)  # it is not solved any more
    assert seen == [2.0]


def test_limits_of_ones_own() -> None:
    made = curriculum(count=4, hopeless=0.25, solved=0.75)
    made.learn(1, Lesson({0: 0.25, 1: 0.26, 2: 0.74, 3: 0.75}, {}))
    made.know(1)
    assert played(made, 4) == [1, 2, 1, 2]


def test_the_judge_decides_and_failures_do_not_count() -> None:
    def one(reward: float, role: str = "", error: str | None = None) -> Rollout:
        return Rollout("a", 0, 0, "", (), "done", (reward,), error, role)

    assert solved_share([one(1.0), one(0.9), one(0.0, error="gone")]) == 0.5
    assert solved_share([one(1.0, "solver"), one(0.0, "judge")]) == 0.0
    assert solved_share([one(0.0, error="gone")]) is None


ROWS = [{"question": f"{n} + 1 = ?", "answer": n + 1} for n in range(7)]


def job(folder: Path, env: str = "3 * sums + 1 * spell", **fields: str) -> Plan:
    data = folder / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    sums = f'env sums = problems("{data}", grader = numeric) |> curriculum(explore = 25%)\n'
    return compiled(TINY + sums + train(env=env, **fields))


@pytest.mark.plain
def test_a_resumed_run_passes_over_the_same_tasks(tmp_path: Path) -> None:
    plan = job(
        tmp_path,
        steps="6",
        batch="groups(4, group_size = 2)",
        loss="ppo()",
        overlap="asynchronous(max_staleness = 2)",
    )
    run_new(tmp_path / "parts", plan, stop_after=("main", 3))
    folder = RunFolder.resume(tmp_path / "parts")
    folder.journal.drop_checkpoint("main", 3)  # as after a kill
    run(folder)

    def seen(path: Path) -> list[Any]:
        return [(r["step"], r["env"], r["task"], r["digest"]) for r in rollouts(path)]

    def known(path: Path) -> list[float]:
        return [record["curriculum/sums/known"] for record in comparable(path)]

    whole = undisturbed(plan)
    assert seen(tmp_path / "parts") == seen(whole)
    assert known(tmp_path / "parts") == known(whole)
    assert known(whole)[0] == 0 < known(whole)[-1]
    counts = Counter(env for _, env, _, _ in seen(whole))
    assert counts == {"sums": 3 * 6 * 2, "spell": 6 * 2}  # the weights of the mixture hold


@pytest.mark.plain
def test_the_tiny_model_is_not_asked_again_what_it_cannot_do(tmp_path: Path) -> None:
    """With nothing explored, a task that was never solved comes again only when all are so."""
    plan = job(tmp_path, env="sums", steps="3", batch="groups(3, group_size = 2)")
    run_new(tmp_path / "run", plan)
    steps = metrics(tmp_path / "run")
    assert [step["curriculum/sums/known"] for step in steps] == [0, 3 / 7, 6 / 7]


WEIGHTS = """
import numpy as np

def unsolved(played_T, reward_T, last_T, step, fresh=1.0):
    assert (last_T < step).all()
    return np.where(played_T == 0, fresh, 1.5 - np.nan_to_num(reward_T))

def one(played_T):
    return np.arange(len(played_T)) == 3
"""


def weighed(folder: Path, name: str, **fields: str) -> Plan:
    (folder / "tasks.py").write_text(WEIGHTS)
    data = folder / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    by = f'by = "{folder / "tasks.py"}:{name}"'
    sums = f'env sums = problems("{data}", grader = numeric) |> curriculum({by})\n'
    return compiled(TINY + sums + train(**{"env": "sums"} | fields))


def test_tasks_are_drawn_by_their_weights_and_once_in_a_step() -> None:
    seen: list[list[float]] = []

    def weights(history: Any) -> Any:
        seen.append(history["reward_T"].tolist())
        return np.array([3.0, 1.0, 0.0, 1.0])

    weigh: Any = weights
    made, counts, position = WeightedTasks(4, 5, weigh), Counter[int](), 0
    for step in range(1, 1_001):
        made.know(step - 1)
        drawn = []
        for _ in range(2):
            position = made.next(position) + 1
            drawn.append((position - 1) % 4)
        assert len(set(drawn)) == 2
        counts.update(drawn[:1])
        made.learn(step, Lesson({drawn[0]: 1.0}, {drawn[0]: float(step % 2)}))
    assert counts.keys() == {0, 1, 3}
    assert 550 < counts[0] < 650  # three fifths of the first draws
    assert np.isnan(seen[0]).all()
    assert 0.4 < seen[-1][0] < 0.6  # the mean over all times that it was played


@pytest.mark.plain
def test_what_a_function_weighs_is_drawn(tmp_path: Path) -> None:
    plan = weighed(tmp_path, "one", steps="2", batch="groups(1, group_size = 2)")
    run_new(tmp_path / "run", plan)
    assert {record["digest"] for record in rollouts(tmp_path / "run")} == {
        rollouts(tmp_path / "run")[0]["digest"]
    }
    assert [step["curriculum/sums/known"] for step in metrics(tmp_path / "run")] == [0, 1 / 7]


@pytest.mark.plain
@pytest.mark.parametrize("overlap", ["synchronous()", "asynchronous(max_staleness = 2)"])
@pytest.mark.parametrize("batch", ["groups(4)", "turns(9, parallel = 4)"])
def test_a_resumed_run_draws_the_same_tasks(tmp_path: Path, overlap: str, batch: str) -> None:
    """Of turns there are two rounds a step, of four tasks with one turn a member."""
    fields = {"steps": "6", "batch": batch, "loss": "ppo()", "advantage": "rebn()"}
    plan = weighed(
        tmp_path, "unsolved", env="sums |> rollouts(group_size = 2)", overlap=overlap, **fields
    )
    run_new(tmp_path / "parts", plan, stop_after=("main", 3))
    folder = RunFolder.resume(tmp_path / "parts")
    folder.journal.drop_checkpoint("main", 3)  # as after a kill
    run(folder)
    assert_same(tmp_path / "parts", undisturbed(plan))
    assert metrics(undisturbed(plan))[-1]["curriculum/sums/known"] > 0
