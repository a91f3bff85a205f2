"""A sample of ``kill_suite.py``: real processes, really killed, and interrupted by real signals."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from killing import Victim, differences, finished, outcome, start, write_recipe

from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.runs import GONE, read_run
from rlc.runtime.records import RunError

pytestmark = [pytest.mark.plain, pytest.mark.kill, pytest.mark.slow]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("killed")


@pytest.fixture(scope="module")
def recipe(folder: Path) -> Path:
    return write_recipe(folder, "asynchronous")


@pytest.fixture(scope="module")
def expected(folder: Path, recipe: Path) -> dict[str, Any]:
    return undisturbed(recipe, folder / "whole")


def undisturbed(recipe: Path, path: Path) -> dict[str, Any]:
    """Return what an undisturbed run leaves."""
    finished(["run", str(recipe), "--seed", "3", "--run-dir", str(path)], path.with_suffix(".log"))
    return outcome(path)


@pytest.fixture
def victim(recipe: Path, tmp_path: Path) -> Victim:
    return Victim(recipe, tmp_path / "run", tmp_path / "log")


def test_a_run_that_is_killed_ends_as_an_undisturbed_one(
    victim: Victim, expected: dict[str, Any]
) -> None:
    """While a state is half written, and while steps that overlap are sampled."""
    for phase, call in (("saving", 5), ("sampling", 6)):
        kill = victim.kill_at(phase, call)
        assert kill is not None
        assert phase in kill.phases
        assert max(kill.lost.values()) <= 1
        info = read_run(victim.path)
        assert (info.state, info.cause) == ("interrupted", GONE)
    victim.finish()
    assert differences(expected, outcome(victim.path)) == []


def interrupted(victim: Victim, times: int) -> int:
    """Send Ctrl-C ``times`` times after the first step of a run, and return its exit status."""
    process, _ = start(victim.words, victim.log)
    victim.begun = True
    while process.is_alive() and not done(victim):
        process.join(0.01)
    with pytest.raises(RunError, match="another process"):
        RunFolder.resume(victim.path)
    for _ in range(times):
        if process.is_alive():  # the second time it may be over
            os.kill(process.pid, signal.SIGINT)
        process.join(0.05)
    process.join(120)
    return int(process.exitcode)


def done(victim: Victim) -> bool:
    metrics = victim.path / "metrics.jsonl"
    return metrics.exists() and b'"main"' in metrics.read_bytes()


def test_ctrl_c_ends_a_run_twice_at_once_and_it_can_be_resumed(
    folder: Path, recipe: Path, tmp_path: Path
) -> None:
    """The run is long: the double has done the steps of the others before a signal comes."""
    longer = folder / "longer.rl"
    text = recipe.read_text(encoding="utf-8")
    assert "steps = 6" in text
    longer.write_text(text.replace("steps = 6", "steps = 20"), encoding="utf-8")
    expected = undisturbed(longer, folder / "longer")
    for times in (1, 2):
        victim = Victim(longer, tmp_path / f"run{times}", tmp_path / f"log{times}")
        assert interrupted(victim, times) == 130, victim.log.read_text()
        assert f"rlc run --resume {victim.path}" in victim.log.read_text().replace("\n", " ")
        assert read_run(victim.path).state == "interrupted"
        victim.finish()
        assert differences(expected, outcome(victim.path)) == []
