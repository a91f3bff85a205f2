"""A run's folder: who may make it, own it and go on with it."""

from __future__ import annotations

import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from attrs import evolve
from run_support import plan

from rlc.runtime.journal.folder import RunFolder, command
from rlc.runtime.journal.runs import read_run
from rlc.runtime.records import RunError


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    with pytest.raises(RunError, match="already exists"):
        RunFolder.create(tmp_path / "run", plan("quickstart"))


def test_runs_of_one_second_have_names_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda _: "20261122-093000")
    job = plan("quickstart")

    def begun(_: int) -> str:
        with closing(RunFolder.create(None, job)) as folder:
            return folder.path.name.removeprefix("recipe-20261122-093000")

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(begun, range(8))) == {"", *(f"-{number}" for number in range(2, 9))}


@pytest.mark.parametrize(
    ("recipe", "name"),
    [("<stdin>", "stdin"), ("a b/$(c) d's.rl", "c-d-s"), ("-x.rl", "x"), ("--.rl", "recipe")],
)
def test_a_run_is_named_in_plain_characters(
    recipe: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = RunFolder.create(None, evolve(plan("quickstart"), recipe=recipe))
    folder.close()
    assert re.fullmatch(rf"{name}-\d{{8}}-\d{{6}}", folder.path.name)


@pytest.mark.parametrize("path", ["runs/a b", "it's", "-x", "$(touch x)", "a;b"])
def test_a_command_about_a_run_works_in_a_shell(path: str, tmp_path: Path) -> None:
    script = command("run --resume", Path(path)).replace("rlc run --resume", "printf '%s' --")
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.removeprefix("--") in (path, f"./{path}")
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_has_one_owner(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", plan("quickstart"))
    with pytest.raises(RunError, match="another process"):
        RunFolder.resume(tmp_path / "run")
    folder.close()


def test_an_edited_plan_is_not_resumed(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    path = tmp_path / "run" / "plan.json"
    path.write_text(path.read_text().replace('"steps": 50', '"steps": 51'))
    with pytest.raises(RunError, match="was changed after the run began"):
        RunFolder.resume(tmp_path / "run")


def test_a_folder_without_a_run_is_not_resumed(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="is not a run folder"):
        RunFolder.resume(tmp_path)


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="cannot write the run folder"):
        RunFolder.create(tmp_path / "file" / "run", plan("quickstart"))


def test_a_run_of_another_version_is_no_damaged_one(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    file = tmp_path / "run" / "plan.json"
    known = file.read_text(encoding="utf-8")
    assert '"source": "gem"' in known
    file.write_text(known.replace('"source": "gem"', '"source": "arena"'), encoding="utf-8")
    assert read_run(tmp_path / "run").state == "interrupted"


def test_an_empty_journal_is_called_damaged(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    for path in (tmp_path / "run").glob("journal.sqlite*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="is empty or damaged"):
        RunFolder.resume(tmp_path / "run")
