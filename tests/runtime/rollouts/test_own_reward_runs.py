"""Runs that are rewarded by functions of the user's own, and what becomes of those that fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from run_support import compiled, metrics, run_new, train

from rlc.runtime.records import RunError, read_failures

pytestmark = pytest.mark.plain

REWARDS = """\
def long(reply, row):
    return len(reply)


def forgetful(reply, row):
    row["name"] in reply


def unlucky(reply, row):
    return 1.0 if reply == "I do not know." else row["luck"]
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = [{"id": f"p{n}", "prompt": f"Say {n}.", "name": str(n)} for n in range(4)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rewards.py").write_text(REWARDS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(graders: str) -> str:
    model = 'model policy { base = "tiny" lora_rank = 4 }\n'
    env = f'env said = rows("prompts.jsonl", grader = {graders})\n'
    return model + env + train(env="said", batch="groups(2, group_size = 2)", steps="2")


def test_a_function_without_a_return_stops_the_run_before_it_begins(project: Path) -> None:
    message = (
        r"prompts.jsonl:1: `rewards.py:forgetful`, for the row with id 'p0', "
        r"returned None instead of a number: is a `return` missing\?"
    )
    with pytest.raises(RunError, match=message):
        run_new(project / "run", compiled(job('grade_with("rewards.py:forgetful")')))


@pytest.mark.parametrize("workers", ["", " |> workers(processes, count = 1)"])
def test_a_reward_that_fails_is_a_failed_rollout_with_its_traceback(
    project: Path, workers: str
) -> None:
    graders = '{ long = grade_with("rewards.py:long")  luck = grade_with("rewards.py:unlucky") }'
    text = job(graders).replace(")\ntrain", f"){workers}\ntrain")
    run_new(project / "run", compiled(text))
    assert [step["failures/reward"] for step in metrics(project / "run")] == [4.0, 4.0]
    (failure,) = read_failures(project / "run")
    assert failure.place == "rewards.py:10"
    assert failure.error.startswith("RewardError: prompts.jsonl:")
    assert "raised KeyError: 'luck'" in failure.error
    assert 'return 1.0 if reply == "I do not know." else row["luck"]' in failure.traceback
