"""How runs stand, read from their folders."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from paths import RECIPES
from run_support import block, copy_of, tiny, train, undisturbed

from rlc.runtime.job import Job
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.runs import GONE, list_runs, read_run
from rlc.runtime.records import RunError
from rlc.runtime.summary import Observer
from rlc.service.hosted.connect import connect_service

SMALL = {"env": "guess", "batch": "groups(2, group_size = 4)", "sampling": "sample(max_tokens = 8)"}
PLAN = tiny(
    train(**SMALL | {"steps": "2"}),
    block("eval", "held", {"model": "main", "env": "guess", "tasks": "2", "every": "1"}),
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run in it."""
    root = tmp_path_factory.mktemp("runs")
    copy_of(undisturbed(PLAN), root / "done")
    return root


@pytest.mark.plain
def test_a_finished_run(runs: Path) -> None:
    info = read_run(runs / "done")
    assert (info.state, info.cause, Path(info.recipe).name) == ("finished", None, "recipe.rl")
    assert [(s.name, s.kind, s.done, s.total) for s in info.stages] == [
        ("main", "train", 2, 2),
        ("held", "eval", 2, 2),
    ]
    assert "reward/mean" in info.stages[0].metrics
    assert info.started is not None
    assert info.updated is not None
    assert info.started < info.updated


def test_a_run_runs_while_a_process_holds_it(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", PLAN)
    assert read_run(tmp_path / "run").state == "running"
    folder.close()  # as when its process is killed: nothing more is written
    info = read_run(tmp_path / "run")
    assert (info.state, info.cause) == ("interrupted", GONE)
    assert info.resumable


def test_looking_at_a_run_never_gets_in_its_way(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", PLAN)
    for step in range(1, 20):
        folder.journal.start_step("main", step)
        assert read_run(tmp_path / "run").stages[0].done == step - 1
        folder.journal.finish_step("main", step, {}, {})
    folder.close()


@pytest.mark.plain
def test_a_failed_run_says_its_first_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder.create(tmp_path / "run", PLAN)
    service = connect_service(PLAN, tmp_path / "run" / "checkpoints")

    def refuse(*_: object, **__: object) -> None:
        raise RunError("the first cause")

    monkeypatch.setattr(Journal, "start_step", refuse)
    with pytest.raises(RunError, match="the first cause"):
        asyncio.run(Job(folder, service, Observer()).run())
    folder.close()
    info = read_run(tmp_path / "run")
    assert (info.state, info.cause) == ("failed", "the first cause")


@pytest.mark.parametrize("file", ["plan.json", "journal.sqlite"])
def test_a_damaged_folder_is_listed_as_such(tmp_path: Path, file: str) -> None:
    RunFolder.create(tmp_path / "run", PLAN).close()
    (tmp_path / "run" / file).write_bytes(b"\xff garbage" * 1000)
    for rest in (tmp_path / "run").glob("journal.sqlite-*"):
        rest.unlink()
    info = read_run(tmp_path / "run")
    assert info.state == "damaged"
    assert file in str(info.cause)


def test_the_newest_run_comes_first_and_other_folders_are_no_runs(tmp_path: Path) -> None:
    for name in ("b", "a"):
        RunFolder.create(tmp_path / name, PLAN).close()
    (tmp_path / "notes").mkdir()
    assert [info.path.name for info in list_runs(tmp_path)] == ["a", "b"]
    assert list_runs(tmp_path / "nowhere") == []
    with pytest.raises(RunError, match="is not a run folder"):
        read_run(RECIPES)
