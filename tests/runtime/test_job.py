"""Whole runs on the embedded engine: learning, reproducing, resuming, refusing."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest
from run_support import comparable, metrics, plan, rollouts, run, run_new

from rlc.plan.records import Plan
from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.engine

SMALL = {"main.steps": "4", "main.batch": "groups(4, of = 4)", "main.save": "every(2, keep = 2)"}


def small(name: str, seed: int = 1) -> Plan:
    return plan(name, SMALL, seed)


def test_a_single_turn_recipe_learns(tmp_path: Path) -> None:
    summary = run_new(tmp_path / "run", plan("spell_backward"))
    (stage,) = summary.stages
    assert summary.state == "finished"
    assert fmean(stage.values[:5]) < 0.65
    assert fmean(stage.values[-5:]) > 0.85


def test_without_a_learning_rate_nothing_is_learned(tmp_path: Path) -> None:
    flat = plan("spell_backward", {"learning_rate": "0.0", "main.steps": "10"})
    summary = run_new(tmp_path / "run", flat)
    rewards = summary.stages[0].values
    assert abs(fmean(rewards[:5]) - fmean(rewards[-5:])) < 0.1


def test_the_same_seed_gives_the_same_run_twice(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run_new(tmp_path / name, small("quickstart"))
    assert comparable(tmp_path / "a") == comparable(tmp_path / "b")
    assert rollouts(tmp_path / "a") == rollouts(tmp_path / "b")


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    for seed in (1, 2):
        run_new(tmp_path / str(seed), small("quickstart", seed))
    assert rollouts(tmp_path / "1") != rollouts(tmp_path / "2")


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path, steps: int) -> None:
    job = small("quickstart")
    run_new(tmp_path / "whole", job)

    stopped = run_new(tmp_path / "parts", job, stop_after=("main", steps))
    assert (stopped.state, len(stopped.stages[0].values)) == ("interrupted", steps)
    resumed = run(RunFolder.resume(tmp_path / "parts"))
    assert resumed.state == "finished"
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")
    assert rollouts(tmp_path / "parts") == rollouts(tmp_path / "whole")


def test_steps_after_the_last_checkpoint_are_run_again(tmp_path: Path) -> None:
    """As after a kill: the journal knows of steps that no saved weights contain."""
    job = small("quickstart")
    run_new(tmp_path / "whole", job)
    run_new(tmp_path / "parts", job, stop_after=("main", 3))
    folder = RunFolder.resume(tmp_path / "parts")
    folder.journal.drop_checkpoint("main", 3)
    resumed = run(folder)
    assert len(resumed.stages[0].values) == 4
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    first = run_new(tmp_path / "run", small("quickstart"))
    again = run(RunFolder.resume(tmp_path / "run"))
    assert again.stages[0].values == first.stages[0].values
    assert len(metrics(tmp_path / "run")) == 4


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    job = plan("quickstart", SMALL | {"main.save": "every(1, keep = 2)"})
    run_new(tmp_path / "run", job)
    again = RunFolder.resume(tmp_path / "run")
    kept = again.journal.checkpoints("main")
    again.close()
    assert [checkpoint.step for checkpoint in kept] == [3, 4]
    saved = {path.name for path in (tmp_path / "run" / "checkpoints").rglob("main-*")}
    assert {name.removesuffix(".safetensors") for name in saved} == {"main-000003", "main-000004"}


def test_the_metrics_of_a_step(tmp_path: Path) -> None:
    run_new(tmp_path / "run", small("quickstart"))
    first = metrics(tmp_path / "run")[0]
    assert (first["stage"], first["step"]) == ("main", 1)
    for key in ("reward/mean", "reward/guess", "tokens/sampled", "tokens/trained", "time/total"):
        assert key in first
    assert abs(first["kl/sample_train"]) < 1e-4
    assert len(rollouts(tmp_path / "run")) == 4 * 16


def test_a_mixture_labels_each_rollout_with_its_environment(tmp_path: Path) -> None:
    run_new(tmp_path / "run", small("mixture"))
    for record in rollouts(tmp_path / "run"):
        first = record["turns"][0]["observation"]
        assert ("Guess The Number" in first) == (record["env"] == "guess")
    envs = {record["env"] for record in rollouts(tmp_path / "run")}
    assert envs == {"guess", "spell"}
    for record in metrics(tmp_path / "run"):
        assert {f"reward/{env}" for env in envs} & set(record)


def damage(folder: Path, how: str) -> None:
    path = folder / "metrics.jsonl"
    if how == "gone":
        path.unlink()
    elif how == "garbage":
        path.write_text(path.read_text() + 'garbage\n{"step": 1}\n{"stage": "main", "st')
    with (folder / "rollouts.jsonl").open("a") as file:
        file.write("\x00 not json\n")


@pytest.mark.parametrize("how", ["gone", "garbage"])
def test_the_files_beside_the_journal_are_made_again(tmp_path: Path, how: str) -> None:
    job = small("quickstart")
    run_new(tmp_path / "whole", job)
    run_new(tmp_path / "parts", job, stop_after=("main", 2))
    damage(tmp_path / "parts", how)
    run(RunFolder.resume(tmp_path / "parts"))
    assert comparable(tmp_path / "parts") == comparable(tmp_path / "whole")
    assert rollouts(tmp_path / "parts") == rollouts(tmp_path / "whole")
