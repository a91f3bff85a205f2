"""Sweeps on the embedded engine: shared stages, budgets, failures, and how they go on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from killing import differences, outcome
from run_support import run_new
from sweep_support import JOB, go_on, loaded, ran, started, write

from rlc.plan.sweeps import Trial
from rlc.runtime.journal.database import NOTHING
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.runtime.summary import Summary
from rlc.sweeps.journal import SweepObserver, SweepSummary
from rlc.sweeps.run import StoppableJob, SweepRun
from rlc.sweeps.trials import TrialRecord

pytestmark = [pytest.mark.plain, pytest.mark.slow]

RATES = "sweep rates {{ of = main  over = {{ rate = [1e-4, 1e-2] }}  {more} }}\n"


def states(summary: SweepSummary) -> list[str]:
    return [record.state for record in summary.trials]


def folders(summary: SweepSummary, name: str = "trials") -> list[Path]:
    return sorted(path for path in (summary.folder / name).iterdir() if path.is_dir())


def test_a_trial_is_the_run_that_it_would_be_alone(tmp_path: Path) -> None:
    """To the bit, though its warm start is another trial's; and what is claimed has a verdict."""
    claim = "claim c { of = rates  that = at(rate == 1e-2) >= at(rate == 1e-4) - 50% }\n"
    recipe = write(tmp_path, RATES.format(more="seeds = 2  metric = held.pass_at_1") + claim)
    summary = ran(started(recipe, tmp_path / "sweep"))
    assert (summary.state, states(summary)) == ("finished", ["finished"] * 4)
    (verdict,) = summary.claims
    low, high = summary.trials[:2], summary.trials[2:]
    pairs = [(b.value or 0) - (a.value or 0) for a, b in zip(low, high, strict=True)]
    assert verdict.values == pairs
    assert len(folders(summary)) == 4
    assert len(folders(summary, "shared")) == 2  # a warm start for each seed
    plan = loaded(recipe, "rate=1e-2", seed=2).plan
    assert plan is not None
    run_new(tmp_path / "alone", plan)
    assert not differences(outcome(folders(summary)[3]), outcome(tmp_path / "alone"))


class StopAfter(SweepObserver):
    """Stops the sweep once so many steps of its trials are done."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.run: SweepRun | None = None

    def step(
        self, trial: Trial, stage: str, step: int, of: int, metrics: Mapping[str, Any]
    ) -> None:
        self.left -= 1
        if self.left == 0:
            assert self.run is not None
            self.run.stop()


# In a shared stage, in the first trial, in the second.
@pytest.mark.parametrize("steps", [1, 4, 7])
def test_a_sweep_that_was_stopped_goes_on(tmp_path: Path, steps: int) -> None:
    recipe = write(tmp_path, RATES.format(more=""))
    made, observer = started(recipe, tmp_path / "sweep"), StopAfter(steps)
    made.observer, observer.run = observer, made
    stopped = ran(made)
    assert stopped.state == "interrupted"
    assert "interrupted" in states(stopped)
    summary = ran(go_on(tmp_path / "sweep"))
    assert (summary.state, states(summary)) == ("finished", ["finished"] * 2)
    whole = ran(started(recipe, tmp_path / "whole"))
    assert [record.value for record in summary.trials] == [record.value for record in whole.trials]
    for mine, its in zip(folders(summary), folders(whole), strict=True):
        assert not differences(outcome(mine), outcome(its))


def test_a_budget_of_what_has_no_price_is_refused(tmp_path: Path) -> None:
    unlisted = JOB.replace('"tiny"', '"vendor/New" service = tinker renderer = qwen3_instruct')
    recipe = write(tmp_path, RATES.format(more="budget = $10"), unlisted)
    with pytest.raises(RunError, match=r"budget of the sweep cannot be kept: .* `vendor/New`"):
        started(recipe, tmp_path / "sweep")


@pytest.mark.engine
def test_a_budget_ends_it_and_a_larger_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = write(tmp_path, RATES.format(more="budget = limit(tokens = 6_500)"))
    first = ran(started(recipe, tmp_path / "sweep"))
    assert (first.state, states(first)) == ("budget", ["finished", "waiting"])
    assert ran(go_on(tmp_path / "sweep")).state == "budget"  # what is left is too little
    with monkeypatch.context() as patched:  # a trial that takes more than was expected of it
        patched.setattr(SweepRun, "_expected_of", lambda *_: NOTHING)
        surprised = ran(go_on(tmp_path / "sweep"))
    assert (surprised.state, states(surprised)) == ("budget", ["finished", "budget"])
    write(tmp_path, RATES.format(more="budget = limit(tokens = 100_000)"))
    assert states(ran(go_on(tmp_path / "sweep"))) == ["finished"] * 2
    write(tmp_path, RATES.format(more="seeds = 3"))
    with pytest.raises(RunError, match="something else than what"):
        go_on(tmp_path / "sweep")


def test_a_trial_that_fails_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = StoppableJob.run

    def run(self: StoppableJob, folder: RunFolder, *more: Any) -> Summary:
        if folder.path.name.startswith("0001"):
            raise RunError("the environment is on fire")
        return usual(self, folder, *more)

    recipe = write(tmp_path, RATES.format(more=""))
    with monkeypatch.context() as patched:
        patched.setattr(StoppableJob, "run", run)
        summary = ran(started(recipe, tmp_path / "sweep"))
    assert states(summary) == ["failed", "finished"]
    assert summary.failed[0].cause == "the environment is on fire"
    assert summary.best is not None
    assert summary.best.number == 2
    assert states(ran(go_on(tmp_path / "sweep"))) == ["finished"] * 2


def test_it_gives_up_if_all_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: StoppableJob, folder: RunFolder, *more: Any) -> Summary:
        raise RunError("no service")

    monkeypatch.setattr(StoppableJob, "run", run)
    summary = ran(started(write(tmp_path, RATES.format(more="seeds = 5")), tmp_path / "sweep"))
    assert summary.state == "failed"
    assert states(summary).count("failed") == 3
    assert "no service" in summary.cause


class Seen(SweepObserver):
    def __init__(self) -> None:
        self.states = list[tuple[int, str]]()

    def trial(self, record: TrialRecord) -> None:
        self.states.append((record.trial.number, record.state))


def test_several_at_once(tmp_path: Path) -> None:
    recipe = write(tmp_path, RATES.format(more=""))
    made, seen = started(recipe, tmp_path / "sweep", jobs=2), Seen()
    made.observer = seen
    summary = ran(made)
    assert states(summary) == ["finished"] * 2
    assert len(folders(summary, "shared")) == 1
    assert sorted(seen.states[:4]) == [
        (1, "running"),
        (1, "waiting"),
        (2, "running"),
        (2, "waiting"),
    ]
