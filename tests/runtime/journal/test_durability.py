"""What becomes of a run when its disk, its folder or its files let it down."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from run_support import assert_same, copy_of, rollouts, run, run_new, tiny, train, undisturbed

import rlc
from rlc.compile.saved import PlanFileError, load_plan
from rlc.plan.codec import plan_hash
from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.start import resume_run
from rlc.runtime.summary import Observer
from rlc.runtime.weights import kept_snapshots, kept_states
from rlc.service.hosted.connect import connect_service
from rlc.service.interface import ServiceError

SMALL = {
    "env": "guess",  # its rewards differ
    "batch": "groups(2, group_size = 4)",
    "sampling": "sample(max_tokens = 8)",
    "steps": "3",
    "save": "every(1, keep = 2)",
}


def small(**fields: str) -> Plan:
    return tiny(train(**SMALL | fields))


def stopped(after: int, where: Path) -> Path:
    """The folder of a run that was stopped after so many steps."""
    return copy_of(undisturbed(small(), ("main", after)), where)


class Noting(Observer):
    def __init__(self) -> None:
        self.notes = list[str]()

    def note(self, text: str) -> None:
        self.notes.append(text)


def resume_noting(path: Path) -> list[str]:
    import asyncio

    folder, observer = RunFolder.resume(path), Noting()
    try:
        service = connect_service(folder.plan, path / "checkpoints")
        asyncio.run(Job(folder, service, observer).run())
    finally:
        folder.close()
    return observer.notes


def checkpoint_files(path: Path) -> list[Path]:
    return sorted((path / "checkpoints").rglob("weights/main-*"))


def garble(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-8:] = b"garbage!"
    file.write_bytes(content)


@pytest.mark.plain
@pytest.mark.parametrize(
    "harm", [Path.unlink, garble, lambda file: os.truncate(file, 100)], ids=["gone", "bits", "cut"]
)
def test_a_damaged_checkpoint_gives_way_to_the_one_before(
    tmp_path: Path, harm: Callable[[Path], Any]
) -> None:
    stopped(2, tmp_path / "run")
    harm(checkpoint_files(tmp_path / "run")[-1])
    (note,) = resume_noting(tmp_path / "run")
    assert "Going on from step 1 of `main`" in note
    assert_same(tmp_path / "run", undisturbed(small()))


@pytest.mark.plain
def test_without_any_checkpoint_nothing_is_thrown_away(tmp_path: Path) -> None:
    stopped(1, tmp_path / "run")
    (file,) = checkpoint_files(tmp_path / "run")
    hidden = file.rename(tmp_path / "elsewhere")
    with pytest.raises(RunError, match="It is the only one that `main` has") as raised:
        run(RunFolder.resume(tmp_path / "run"))
    assert "put it back" in str(raised.value.hint)
    hidden.rename(file)  # so that somebody who finds it can go on
    assert run(RunFolder.resume(tmp_path / "run")).state == "finished"


def full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fill_rollouts(monkeypatch: pytest.MonkeyPatch) -> None:
    append = RunFolder.append

    def torn(folder: RunFolder, name: str, records: Iterable[dict[str, Any]]) -> None:
        if name != "rollouts.jsonl" or len(rollouts(folder.path)) < 4:
            return append(folder, name, records)
        with (folder.path / name).open("a") as file:
            file.write('{"stage": "main", "step": 2, "rew')
        return full_disk()

    monkeypatch.setattr(RunFolder, "append", torn)


def fill_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, fsync = [0], os.fsync

    def second(handle: int) -> None:
        calls[0] += 1
        return full_disk() if calls[0] == 2 else fsync(handle)

    monkeypatch.setattr(os, "fsync", second)


def fill_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own limit on the size of a file: it then says what it says on a full disk."""
    finish = Journal.finish_step

    def cramped(journal: Journal, stage: str, step: int, *rest: Any) -> None:
        if step == 2:
            (pages,) = journal._db.execute("PRAGMA page_count").fetchone()
            journal._db.execute(f"PRAGMA max_page_count = {pages}")
            rest = ({"cursor": "x" * 100_000}, *rest[1:])
        finish(journal, stage, step, *rest)

    monkeypatch.setattr(Journal, "finish_step", cramped)


@pytest.mark.plain
@pytest.mark.parametrize("fill", [fill_rollouts, fill_checkpoints, fill_journal])
def test_a_full_disk_is_told_and_loses_nothing(
    tmp_path: Path, fill: Callable[[pytest.MonkeyPatch], None]
) -> None:
    folder = RunFolder.create(tmp_path / "run", small())
    (tmp_path / "run" / "rollouts.jsonl").touch()
    with pytest.MonkeyPatch.context() as patched:
        fill(patched)
        with pytest.raises((RunError, ServiceError), match=r"annot write .*(space|full)") as told:
            run(folder)
    assert "make room on its disk" in str(told.value.hint)
    run(RunFolder.resume(tmp_path / "run"))
    assert_same(tmp_path / "run", undisturbed(small()))


def test_a_folder_that_cannot_be_locked_is_a_clear_error(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", small()).close()
    (tmp_path / "run" / ".lock").unlink()
    (tmp_path / "run" / ".lock").mkdir()
    with pytest.raises(RunError, match="cannot write the run folder"):
        RunFolder.resume(tmp_path / "run")


@pytest.mark.plain
def test_a_journal_with_garbage_in_it_is_called_damaged(tmp_path: Path) -> None:
    run_new(tmp_path / "run", small(steps="1"))
    file = tmp_path / "run" / "journal.sqlite"
    content = bytearray(file.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    file.write_bytes(content)
    with pytest.raises(RunError, match=r"journal .* cannot be read"):
        RunFolder.resume(tmp_path / "run")


def test_an_edited_plan_is_refused_with_what_differs(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", small()).close()
    file = tmp_path / "run" / "plan.json"
    file.write_text(file.read_text().replace('"steps": 3', '"steps": 5'))
    with pytest.raises(
        RunError, match=r"was changed after the run began\n(.*\n)?.*main\.steps +3 → 5"
    ):
        RunFolder.resume(tmp_path / "run")
    file.unlink()  # what the error says to do
    folder = RunFolder.resume(tmp_path / "run")
    folder.close()
    assert plan_hash(folder.recorded) == plan_hash(small())
    assert '"steps": 3' in file.read_text()


def test_a_changed_recipe_is_shown_beside_what_was_begun(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", small()).close()
    with pytest.raises(RunError, match=r"begun with\n.*main\.steps +3 → 4") as told:
        resume_run(tmp_path / "run", small(steps="4"))
    assert "goes on with the plan that was begun" in str(told.value.hint)
    resume_run(tmp_path / "run", small()).close()


def test_the_plan_of_a_run_folder_can_be_run_again(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "run", small()).close()
    file = tmp_path / "run" / "plan.json"
    assert plan_hash(load_plan(file)) == plan_hash(small())
    file.write_text(file.read_text().replace('"steps": 3', '"steps": 5'))
    with pytest.raises(PlanFileError, match="was edited"):
        load_plan(file)


def test_a_run_that_cannot_start_leaves_no_folder(tmp_path: Path) -> None:
    (tmp_path / "broken_env.py").write_text("raise ImportError('no such luck')")
    text = 'env broken = python("broken_env:make") |> chat()\n'
    with pytest.raises(RunError):
        rlc.run(tiny(text, train(**SMALL | {"env": "broken"})), run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.plain
def test_leftovers_of_a_kill_are_swept(tmp_path: Path) -> None:
    stopped(1, tmp_path / "run")
    (kept,) = checkpoint_files(tmp_path / "run")
    (kept.parent / ".main-000002-half").write_bytes(b"half a file")
    unknown = kept.with_name("main-000002.safetensors")
    unknown.write_bytes(kept.read_bytes())
    rlc.resume(tmp_path / "run")
    assert not unknown.exists()
    assert not list((tmp_path / "run" / "checkpoints").rglob(".*"))


@pytest.mark.plain
def test_a_state_that_is_gone_already_is_forgotten(tmp_path: Path) -> None:
    """As where a process died between deleting a state and journalling that."""
    stopped(2, tmp_path / "run")
    older, _ = checkpoint_files(tmp_path / "run")
    older.unlink()
    assert resume_noting(tmp_path / "run") == []
    assert [path.name for path in checkpoint_files(tmp_path / "run")] == [
        path.name for path in checkpoint_files(undisturbed(small()))
    ]
    folder = RunFolder.resume(tmp_path / "run")
    assert list(folder.journal.checkpoints("main")) == [2, 3]
    folder.close()


def test_which_states_stay() -> None:
    save = small(save="every(5, keep = 2)").stages[0].save  # type: ignore[union-attr]
    assert kept_states(save, [5, 10, 15, 16, 17], [5, 10, 15], None) == {10, 15, 17}
    assert kept_states(save, [5, 10, 15, 16], [5, 10, 15], best=5) == {5, 10, 15, 16}
    assert kept_states(save, [1], [], None) == {1}


def test_which_snapshots_stay() -> None:
    """After step 9 steps 10, 11 and 12 sample from 7, 8 and 9; after step 4 it was 2, 3 and 4."""
    assert kept_snapshots(range(10), {4, 9}, done=9, lag=2) == {2, 3, 7, 8, 9}
    assert kept_snapshots(range(10), {8}, done=9, lag=1) == {7, 8, 9}
