"""Functions of the user's own in runs: what they say is what is learnt, also of a resumed run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from killing import Victim, differences, finished, outcome
from run_support import (
    TINY,
    assert_same,
    block,
    compiled,
    metrics,
    rollouts,
    run,
    run_new,
    train,
    undisturbed,
)

from rlc.data.errors import DataError
from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError, read_failures
from rlc.runtime.stages.own_advantages import STATE
from rlc.runtime.start import require_runnable

pytestmark = pytest.mark.plain

CREDIT = """
import numpy as np

def drifting(total_R, length_R, group_R, step, state, decay=0.9):
    before = state.get("mean", 0.0)
    state["mean"] = decay * before + (1 - decay) * float(length_R.mean())
    state.setdefault("steps", []).append(step)
    return length_R - before, length_R > 1

def last_turn(rewards_N, turns_R):
    advantages_N = np.zeros(len(rewards_N))
    advantages_N[np.cumsum(turns_R) - 1] = 2.0
    return advantages_N

def late(total_R, step):
    return total_R if step < 3 else helper(total_R)

def helper(total_R):
    raise ValueError("too late")
"""


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "credit.py").write_text(CREDIT)
    return tmp_path


def job(folder: Path, name: str = "drifting", args: str = "", **fields: str) -> Plan:
    scheme = f'python("{folder / "credit.py"}:{name}"{args})'
    return compiled(TINY + train(advantage=scheme, **fields))


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"overlap": "streamed(minibatches = 3)"},
        {"overlap": "asynchronous(max_staleness = 2)", "loss": "ppo()", "steps": "6"},
    ],
    ids=["synchronous", "streamed", "asynchronous"],
)
def test_a_state_goes_on_where_it_was(folder: Path, fields: dict[str, str]) -> None:
    plan = job(folder, args=", args = { decay = 0.5 }", **fields)
    path = folder / "parts"
    run_new(path, plan, stop_after=("main", 3))
    resumed = RunFolder.resume(path)
    resumed.journal.drop_checkpoint("main", 3)  # as after a kill
    run(resumed)
    assert_same(path, undisturbed(plan))
    done = RunFolder.resume(path)
    states = [step.cursor[STATE] for step in done.journal.steps("main")]
    done.close()
    assert [state["steps"][-1] for state in states] == list(range(1, len(states) + 1))
    assert len({state["mean"] for state in states}) > 1


def test_advantages_are_those_that_it_returns(folder: Path) -> None:
    plan = job(folder, "last_turn", steps="1")
    for rollout in rollouts(undisturbed(plan)):
        advantages = rollout["advantages"]
        assert advantages == [0.0] * (len(advantages) - 1) + [2.0]


def test_its_mistake_ends_the_run_with_its_traceback(folder: Path) -> None:
    with pytest.raises(
        DataError, match=r"`.*:late` raised ValueError: too late \(.*py:19\)"
    ) as end:
        run_new(folder / "run", job(folder, "late"))
    (note,) = end.value.__notes__
    assert "return total_R if step < 3 else helper(total_R)" in note
    (failure,) = read_failures(folder / "run")
    assert failure.place is not None
    assert failure.place.endswith("credit.py:19")
    assert 'raise ValueError("too late")' in failure.traceback
    assert len(metrics(folder / "run")) == 2  # what was done is kept


def test_a_run_begins_with_functions_that_are_there(folder: Path) -> None:
    plan = job(folder)
    (folder / "credit.py").write_text("def other(total_R):\n    return total_R\n")
    with pytest.raises(RunError, match="has no `drifting`"):
        require_runnable(plan)


@pytest.mark.kill
@pytest.mark.slow
def test_a_killed_run_ends_as_an_undisturbed_one(folder: Path) -> None:
    recipe = folder / "recipe.rl"
    advantage = 'python("credit.py:drifting")'
    fields = {"overlap": "asynchronous(max_staleness = 1)", "loss": "ppo()", "save": "every(1)"}
    recipe.write_text(TINY + train(advantage=advantage, steps="5", **fields))
    whole = folder / "whole"
    finished(["run", str(recipe), "--seed", "3", "--run-dir", str(whole)], folder / "whole.log")
    victim = Victim(recipe, folder / "run", folder / "log")
    assert victim.kill_at("saving", 3) is not None
    victim.finish()
    assert differences(outcome(whole), outcome(folder / "run")) == []


CHOICE = """
def shortest(episodes, most=1):
    return sorted(episodes, key=lambda e: (e.tokens, e.text))[:most]
"""


def test_a_function_chooses_what_is_learnt_from(folder: Path) -> None:
    (folder / "choice.py").write_text(CHOICE)
    keep = f'python("{folder / "choice.py"}:shortest", args = {{ most = 2 }})'
    shown = "env = spell, n = 8, samples_per_task = 4, sampling = sample(max_tokens = 16)"
    stage = {
        "model": "policy",
        "data": f"samples(policy, {shown}, keep = {keep})",
        "batch": "4",
        "steps": "3",
        "optimizer": "adam(1e-3)",
    }
    plan = compiled(TINY + block("sft", "warmup", stage))
    path = undisturbed(plan)
    tasks = lines(path / "episodes-warmup.jsonl")
    due = [
        one["actions"]
        for task in tasks
        for one in sorted(task["episodes"], key=lambda e: (e["tokens"], "\n".join(e["actions"])))[
            :2
        ]
    ]
    assert [one["actions"] for one in lines(path / "examples-warmup.jsonl")] == due[:8]
    run_new(folder / "parts", plan, stop_after=("warmup", 1))
    run(RunFolder.resume(folder / "parts"))
    assert_same(folder / "parts", path)


@pytest.mark.parametrize("kl", ["final = 0", "final = 1"])
def test_a_penalty_goes_to_its_last_strength_and_on_from_there(folder: Path, kl: str) -> None:
    fields = {"kl": f"reference(policy.base, coef = 0.5, {kl})", "loss": "ppo()"}
    plan = compiled(TINY + train(**fields))
    stage = plan.trainings[0].policy_gradient
    assert stage is not None
    assert stage.kl is not None
    end = float(kl[-1])
    wanted = [0.5, 0.5 + (end - 0.5) / 3, 0.5 + 2 * (end - 0.5) / 3, end]
    assert [stage.kl.at(step, 4).coef for step in (1, 2, 3, 4)] == pytest.approx(wanted)
    run_new(folder / "parts", plan, stop_after=("main", 2))
    run(RunFolder.resume(folder / "parts"))
    assert_same(folder / "parts", undisturbed(plan))
    constant = compiled(TINY + train(kl="reference(policy.base, coef = 0.5)", loss="ppo()"))
    first, *later = zip(metrics(undisturbed(plan)), metrics(undisturbed(constant)), strict=True)
    assert first[0]["loss/sum"] == first[1]["loss/sum"]
    assert any(one["kl/reference"] != other["kl/reference"] for one, other in later)
