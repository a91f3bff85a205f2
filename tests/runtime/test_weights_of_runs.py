"""A model that starts from what an earlier run has left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from run_support import TINY, compiled, run, run_new, train

from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable

pytestmark = pytest.mark.plain

HELD = "eval held { model = main  env = guess  tasks = 8  sampling = sample(max_tokens = 8) }\n"
FAST = {"steps": "2", "optimizer": "adam(1.0)"}


def other(weights: str, *stages: str) -> str:
    return TINY.replace("lora_rank = 4", f'weights = "{weights}"') + "".join(stages)


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "a"
    run_new(path, compiled(TINY + train(**FAST) + HELD))
    return path


def test_weights_are_those_of_the_run(first: Path, tmp_path: Path) -> None:
    ended = RunFolder.resume(first)
    expected = ended.journal.steps("held")[-1].metrics["eval/held/mean_reward"]
    ended.close()
    same = HELD.replace("model = main", "model = policy")
    summary = run_new(tmp_path / "b", compiled(other(str(first), same)))
    assert summary.evaluations[0].metrics["mean_reward"] == expected
    plain = run_new(tmp_path / "c", compiled(TINY + same))
    assert plain.evaluations[0].metrics["mean_reward"] != expected


def test_the_state_of_the_optimiser_comes_along_where_that_is_said(
    first: Path, tmp_path: Path
) -> None:
    text = other(str(first), train(**FAST))
    fresh = run_new(tmp_path / "b", compiled(text))
    said = compiled(text.replace(f'"{first}"', f'state("{first}")'))
    kept = run_new(tmp_path / "c", said)
    assert kept.stages[0].values[0] == fresh.stages[0].values[0]  # the same weights
    assert kept.stages[0].values[1] != fresh.stages[0].values[1]  # moved by another update


def test_a_run_goes_on_without_the_run_that_it_began_with(first: Path, tmp_path: Path) -> None:
    source = tmp_path / "a"
    shutil.copytree(first, source)
    plan = compiled(other(str(source), train(**{**FAST, "steps": "4"})))
    whole = run_new(tmp_path / "whole", plan)
    run_new(tmp_path / "b", plan, ("main", 1))
    shutil.rmtree(source)
    resumed = run(RunFolder.resume(tmp_path / "b"))
    assert resumed.stages[0].values == whole.stages[0].values
    with pytest.raises(RunError, match="the weights of `policy`: there is no folder"):
        require_runnable(plan)
