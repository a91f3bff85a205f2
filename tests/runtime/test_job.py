"""Whole runs on the embedded engine: learning, reproducing, resuming, refusing."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from run_support import (
    assert_same,
    copy_of,
    metrics,
    plan,
    rollouts,
    run,
    run_new,
    undisturbed,
)

from rlc.catalog.metrics import metrics_of
from rlc.plan.records import Plan
from rlc.pricing.cost import stage_cost
from rlc.runtime.journal.folder import RunFolder

pytestmark = pytest.mark.plain

SMALL = {
    "main.steps": "4",
    "main.batch": "groups(3, group_size = 4)",
    "main.save": "every(2, keep = 2)",
}


def small(name: str, seed: int = 1) -> Plan:
    return plan(name, SMALL, seed)


@pytest.mark.engine
@pytest.mark.slow
def test_a_single_turn_recipe_learns(tmp_path: Path) -> None:
    fewer = {"main.steps": "9", "main.batch": "groups(6, group_size = 8)", "learning_rate": "5e-3"}
    summary = run_new(tmp_path / "run", plan("spell_backward", fewer))
    (stage,) = summary.stages
    assert summary.state == "finished"
    assert fmean(stage.values[:3]) < 0.65
    assert fmean(stage.values[-3:]) > 0.85


def test_the_same_seed_gives_the_same_run_twice(tmp_path: Path) -> None:
    run_new(tmp_path / "again", small("quickstart"))
    assert_same(tmp_path / "again", undisturbed(small("quickstart")))


def test_another_seed_gives_another_run(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan("quickstart", SMALL | {"main.steps": "1"}, seed=2))
    first = [record for record in rollouts(undisturbed(small("quickstart"))) if record["step"] == 1]
    assert rollouts(tmp_path / "run") != first


@pytest.mark.parametrize("steps", [1, 3])
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path, steps: int) -> None:
    job = small("quickstart")
    stopped = run_new(tmp_path / "parts", job, stop_after=("main", steps))
    assert (stopped.state, len(stopped.stages[0].values)) == ("interrupted", steps)
    resumed = run(RunFolder.resume(tmp_path / "parts"))
    assert resumed.state == "finished"
    assert_same(tmp_path / "parts", undisturbed(job))


def test_steps_after_the_last_checkpoint_are_run_again(tmp_path: Path) -> None:
    """As after a kill: the journal knows of steps that no saved weights contain."""
    job = small("quickstart")
    folder = RunFolder.resume(copy_of(undisturbed(job, stop_after=("main", 3)), tmp_path / "parts"))
    folder.journal.drop_checkpoint("main", 3)
    resumed = run(folder)
    assert len(resumed.stages[0].values) == 4
    assert_same(tmp_path / "parts", undisturbed(job))


def test_a_finished_run_has_nothing_left_to_do(tmp_path: Path) -> None:
    path = copy_of(undisturbed(small("quickstart")), tmp_path / "run")
    before = (path / "metrics.jsonl").read_bytes()
    again = run(RunFolder.resume(path))
    assert list(again.stages[0].values) == [record["reward/mean"] for record in metrics(path)]
    assert (path / "metrics.jsonl").read_bytes() == before


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path) -> None:
    fewer = {"main.batch": "groups(1, group_size = 2)", "main.save": "every(1, keep = 2)"}
    run_new(tmp_path / "run", plan("quickstart", SMALL | fewer))
    again = RunFolder.resume(tmp_path / "run")
    kept = again.journal.checkpoints("main")
    again.close()
    assert list(kept) == [3, 4]
    saved = {path.name for path in (tmp_path / "run" / "checkpoints").rglob("main-*")}
    assert {name.removesuffix(".safetensors") for name in saved} == {"main-000003", "main-000004"}


def test_the_metrics_of_a_step() -> None:
    path = undisturbed(small("quickstart"))
    first = metrics(path)[0]
    assert (first["stage"], first["step"]) == ("main", 1)
    for key in ("reward/mean", "reward/guess", "tokens/sampled", "tokens/trained", "time/total"):
        assert key in first
    assert abs(first["kl/sample_train"]) < 1e-4
    assert 0 <= first["kl/train_sample"] < 1e-6
    assert first["policy/ess"] == pytest.approx(1, abs=1e-6)
    assert first["entropy/mean"] == first["entropy/guess"] > 0
    assert "policy/clip_fraction" not in first  # this loss has no clip range
    assert len(rollouts(path)) == 4 * 12


def test_every_metric_is_in_the_catalogue() -> None:
    """Each entry of a record is one that the catalogue knows of its stage."""
    for name in ("quickstart", "warm_start", "spell_duel", "mixture"):
        job = small(name)
        known = {stage.name: metrics_of(stage).values() for stage in job.stages}
        for record in metrics(undisturbed(job)):
            keys = [one.key for one in known[record["stage"]]]
            for key in record.keys() - {"stage", "step"}:
                beginning = key.rpartition("/")[0]
                assert key in keys or f"{beginning}/*" in keys, key


LEARNT = [  # these have steps that train on nothing unless the model knows how to spell
    pytest.param(name, marks=pytest.mark.engine) for name in ("spell_backward", "spell_duel")
]


@pytest.mark.parametrize("name", ["quickstart", "warm_start", *LEARNT])
def test_a_run_takes_what_was_predicted(name: str) -> None:
    job = plan(name, SMALL | {"main.steps": "2"})
    records = metrics(undisturbed(job))
    for stage in job.stages:
        mine = [record for record in records if record["stage"] == stage.name]
        cost = stage_cost(stage)
        low, high = (cost.step_tokens[level] * len(mine) for level in ("low", "high"))

        def used(*kinds: str, of: list[dict[str, Any]] = mine) -> int:
            return sum(record[f"tokens/{kind}"] for kind in kinds for record in of)

        assert low.prefill + low.cached <= used("prefill", "cached") <= high.prefill, stage.name
        assert low.sample <= used("sampled") <= high.sample, stage.name
        assert low.train <= used("trained") <= high.train, stage.name


def test_a_mixture_labels_each_rollout_with_its_environment(tmp_path: Path) -> None:
    run_new(tmp_path / "run", plan("mixture", SMALL | {"main.steps": "2"}))
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
    copy_of(undisturbed(job, stop_after=("main", 3)), tmp_path / "parts")
    damage(tmp_path / "parts", how)
    run(RunFolder.resume(tmp_path / "parts"))
    assert_same(tmp_path / "parts", undisturbed(job))
