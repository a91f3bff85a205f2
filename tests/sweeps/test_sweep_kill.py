"""Sweeps that are killed with SIGKILL and gone on with: real processes of the real command."""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from pathlib import Path

import pytest
from killing import differences, finished, outcome, start
from sweep_support import write

from rlc.sweeps.journal import SWEEP_FILE, SweepJournal
from rlc.sweeps.trials import TrialRecord

pytestmark = [pytest.mark.plain, pytest.mark.kill, pytest.mark.slow]

GRID = "sweep s { of = main  over = { rate = [1e-4, 1e-2]  shown = [8, 12] } }\n"
DRAWN = "sweep s { of = main  over = { rate = log(1e-5, 1e-2) }  search = tpe(3) }\n"


def records(folder: Path) -> list[TrialRecord]:
    with closing(SweepJournal(folder / SWEEP_FILE, read_only=True)) as journal:
        return journal.trials()


@pytest.fixture(scope="module", params=[GRID, DRAWN], ids=["grid", "drawn"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a recipe, with what an undisturbed sweep of it leaves."""
    folder = tmp_path_factory.mktemp("swept")
    recipe = write(folder, request.param)
    finished(["sweep", str(recipe), "--run-dir", str(folder / "whole")], folder / "log")
    return folder


# The calls at which it is killed, one after the other: a step that is journalled, an evaluation,
# a checkpoint that is written.
KILLS = (("journalling", 1), ("journalling", 5), ("evaluating", 2), ("saving", 3))


def test_no_trial_is_run_twice(whole: Path, tmp_path: Path) -> None:
    folder, log = tmp_path / "sweep", tmp_path / "log"
    words = ["sweep", str(whole / "small.rl"), "--run-dir", str(folder)]
    for kill in KILLS:
        process, _ = start(words, log, kill)
        process.join()
        assert process.exitcode == -signal.SIGKILL, log.read_text()
        words = ["sweep", "--resume", str(folder)]
    known = {record.trial.id for record in records(folder)}
    finished(words, log)
    expected, found = records(whole / "whole"), records(folder)
    assert [(r.trial, r.state, r.value) for r in found] == [
        (r.trial, r.state, r.value) for r in expected
    ]
    assert known <= {record.trial.id for record in found}
    for name in ("trials", "shared"):
        mine, its = (
            {path.name: path for path in (root / name).iterdir() if not path.name.startswith(".")}
            for root in (folder, whole / "whole")
        )
        assert mine.keys() == its.keys()
        for run, path in mine.items():
            assert not differences(outcome(its[run]), outcome(path))


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_ends_it_and_it_goes_on(tmp_path: Path, times: int) -> None:
    recipe, folder, log = write(tmp_path, GRID), tmp_path / "sweep", tmp_path / "log"
    process, _ = start(["sweep", str(recipe), "--run-dir", str(folder)], log)
    while process.is_alive() and not list(folder.glob("trials/*/metrics.jsonl")):
        process.join(0.01)
    for _ in range(times):
        with suppress(ProcessLookupError):  # the first may have ended it already
            os.kill(process.pid, signal.SIGINT)
        process.join(0.05)
    process.join(120)
    assert process.exitcode == 130, log.read_text()
    assert f"rlc sweep --resume {folder}" in log.read_text()
    assert "Traceback" not in log.read_text()
    finished(["sweep", "--resume", str(folder)], log)
    assert [record.state for record in records(folder)] == ["finished"] * 4
