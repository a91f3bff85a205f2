"""``rlc runs``: which runs there are, and how each stands."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from made_up_runs import START, write_run
from paths import ROOT

from rlc.api import Recipe
from rlc.catalog.records import WatchedMetric
from rlc.cli.commands.jobs.runs import table
from rlc.cli.main import main
from rlc.cli.summary import last_results
from rlc.plan.records import Plan
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.runs import RunInfo, StageInfo, read_run, what_differs
from rlc.version import __version__


def set_meta(folder: Path, **values: str) -> None:
    journal = Journal(folder / "journal.sqlite")
    journal.set_meta(**values)
    journal.close()


def test_the_newest_run_comes_first_with_its_steps_rewards_and_spend(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = write_run(tmp_path / "older")
    write_run(tmp_path / "newer", done=4)
    set_meta(tmp_path / "newer", started=str(START + 60), state="interrupted")
    (tmp_path / "notes.txt").write_text("not a run")
    assert main(["runs", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "newer" in lines[1]
    assert "interrupted" in lines[1]
    assert "main 4/8" in lines[1]
    (older,) = [line for line in lines if "older" in line]
    for text in ("finished", "recipe.rl", "main 8/8", "$0.2183"):
        assert text in older
    last = [record for record in records if record["stage"] == "main"][-1]
    rewards = f"guess {last['reward/guess']:.3f}, spell {last['reward/spell']:.3f}"
    assert rewards in older
    assert f"  go on with: rlc run --resume {tmp_path / 'newer'}" in lines
    set_meta(tmp_path / "newer", state="budget")  # it would stop again
    assert main(["runs", str(tmp_path)]) == 0
    assert "go on with" not in capsys.readouterr().out
    assert not any("--resume" in line and "older" in line for line in lines)


def test_a_run_whose_process_is_gone_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "run", done=4)
    set_meta(tmp_path / "run", state="running")
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "interrupted" in out
    assert f"{tmp_path / 'run'}: its process is gone" in out


def test_a_failed_run_says_why_and_a_damaged_one_spoils_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "failed", done=4)
    set_meta(tmp_path / "failed", state="failed", cause="the disk is full")
    write_run(tmp_path / "torn")
    (tmp_path / "torn" / "journal.sqlite").write_bytes(b"garbage" * 100)
    assert main(["runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "failed: the disk is full" in out
    assert "damaged" in out


def test_the_same_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run")
    assert main(["runs", str(tmp_path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["state"], run["resumable"], run["path"]) == (
        "finished",
        False,
        str(tmp_path / "run"),
    )
    assert [(s["name"], s["done"], s["total"]) for s in run["stages"]] == [
        ("main", 8, 8),
        ("heldout", 5, 5),
    ]
    assert run["stages"][0]["metrics"]["step"] == 8
    assert {*run["stages"][0]} == {"name", "kind", "done", "total", "metrics"}


def test_a_single_run_may_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "run")
    assert main(["runs", str(tmp_path / "run")]) == 0
    assert "main 8/8" in capsys.readouterr().out


def test_where_there_are_none_it_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for root in (tmp_path, tmp_path / "nowhere"):
        assert main(["runs", str(root)]) == 1
        errors = capsys.readouterr().err
        assert f"there are no runs in {root}" in errors
        assert "rlc run RECIPE" in errors
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_losses_roles_and_evaluations_are_told_apart(tmp_path: Path) -> None:
    parts = tuple(WatchedMetric("reward", f"reward/{env}", of=env) for env in "ab")
    reward = WatchedMetric("reward", "reward/mean", parts=parts)
    loss, kl = WatchedMetric("loss", "loss/mean"), WatchedMetric("teacher kl", "teacher/kl")
    stages = (
        StageInfo("warmup", "sft", 3, 3, {"loss/mean": 0.25, "loss/sum": 8.0}, (loss,)),
        StageInfo("main", "train", 1, 9, {"reward/a": 0.5, "teacher/kl": 2}, (reward, kl)),
        StageInfo("heldout", "eval", 1, 2, {"eval/heldout/pass@1": 0.75, "eval/heldout/failed": 0}),
    )
    now = time.time()
    info = RunInfo(tmp_path, "r.rl", "running", None, now - 90, now - 61, stages, 0.0)
    assert last_results(info) == "loss 0.250\na 0.500, teacher kl 2.000\npass@1 0.750"
    ago = table([info], now, {}).columns[-1]
    assert [str(cell) for cell in ago.cells] == ["1 min 01 s"]


def test_runs_are_found_by_their_tags(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, tags in (("one", "short baseline"), ("two", "")):
        write_run(tmp_path / name)
        set_meta(tmp_path / name, tags=tags)
    assert main(["runs", str(tmp_path), "--tag", "short", "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["path"], run["tags"]) == (str(tmp_path / "one"), ["short", "baseline"])
    assert main(["runs", str(tmp_path)]) == 0
    head, first, *_ = capsys.readouterr().out.splitlines()
    assert "tags" in head
    assert "short" in first
    assert main(["runs", str(tmp_path), "--tag", "long"]) == 1
    assert "there are no runs with the tag long" in capsys.readouterr().err


def test_a_tag_is_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    for tag in ("", "two words"):
        assert main(["run", "recipes/quickstart.rl", "--tag", tag]) == 2
        assert "give one without spaces" in capsys.readouterr().err


def test_what_was_set_is_shown_of_a_run_alone(tmp_path: Path) -> None:
    plans = {
        "set": recipe_plan(overrides=("main.steps=3",), seed=4),
        "rehearsed": recipe_plan(rehearse=True),
        "plain": recipe_plan(),
    }
    for name, plan in plans.items():
        with closing(RunFolder.create(tmp_path / name, plan)):
            pass
    differing = {name: what_differs([read_run(tmp_path / name)]) for name in plans}
    assert differing["set"] == {tmp_path / "set": {"seed": "4", "main.steps": "3"}}
    assert differing["rehearsed"] == {tmp_path / "rehearsed": {"rehearse": "true"}}
    assert differing["plain"] == {tmp_path / "plain": {}}


def recipe_plan(**options: Any) -> Plan:
    return Recipe(str(ROOT / "recipes" / "quickstart.rl"), **options).plan()


def test_tags_are_kept_and_added_to(tmp_path: Path) -> None:
    with closing(RunFolder.create(tmp_path / "run", recipe_plan())) as folder:
        folder.add_tags(["a", "b"])
        folder.add_tags([])
        folder.add_tags(["b", "c"])
    info = read_run(tmp_path / "run")
    assert info.tags == ("a", "b", "c")
    assert info.version == __version__
