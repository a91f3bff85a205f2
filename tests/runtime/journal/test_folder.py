"""A run's folder: who may make it, own it and go on with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_support import plan

from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError


def test_a_run_folder_is_never_overwritten(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    with pytest.raises(RunError, match="already exists"):
        RunFolder.create(tmp_path / "run", plan("quickstart"))


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


def test_an_empty_journal_is_called_damaged(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", plan("quickstart")).close()
    for path in (tmp_path / "run").glob("journal.sqlite*"):
        path.write_bytes(b"")
    with pytest.raises(RunError, match="is empty or damaged"):
        RunFolder.resume(tmp_path / "run")
