"""Searches on the embedded engine: who ends early, and what a search is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from sweep_support import ran, started, write

from rlc.plan.records import Plan
from rlc.plan.sweeps import Trial
from rlc.runtime.journal.runs import read_run
from rlc.sweeps.run import SweepRun

pytestmark = [pytest.mark.plain, pytest.mark.slow]

HALVED = """\
sweep halved {
  of     = main
  over   = { rate = [1e-3, 1e-8, 1e-9] }
  search = halving(eta = 2)
  seeds  = 2
  metric = held.mean_reward
}
"""


def test_a_halving_ends_some_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other seeds of a configuration run only if its first one goes to the end."""
    usual, means = SweepRun._measured, {1: 0.9, 2: 0.9, 3: 0.1}

    def measured(self: SweepRun, trial: Trial, plan: Plan, step: int, value: float) -> None:
        usual(self, trial, plan, step, means[trial.number])

    monkeypatch.setattr(SweepRun, "_measured", measured)
    summary = ran(started(write(tmp_path, HALVED), tmp_path / "sweep"))
    assert summary.state == "finished"
    found = [(record.trial.number, record.trial.seed, record.state) for record in summary.trials]
    ends = [(number, seed, "finished") for number in (1, 2) for seed in (1, 2)]
    assert found == [*ends, (3, 1, "pruned")]
    (ended,) = (summary.folder / "trials").glob("0003-seed1-*")
    stages = {stage.name: stage.done for stage in read_run(ended).stages}
    assert stages == {"warmup": 2, "main": 1, "held": 1}


def test_a_drawn_sweep_tries_as_many_as_it_says(tmp_path: Path) -> None:
    text = "sweep drawn { of = main  over = { rate = log(1e-5, 1e-2) }  search = tpe(2) }\n"
    summary = ran(started(write(tmp_path, text), tmp_path / "sweep"))
    assert [record.state for record in summary.trials] == ["finished"] * 2
    rates = [float(record.trial.configuration["rate"]) for record in summary.trials]
    assert len(set(rates)) == 2
    assert all(1e-5 <= rate <= 1e-2 for rate in rates)
