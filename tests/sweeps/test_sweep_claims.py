"""Claims while a sweep runs: the order of its trials, those that are left out, the verdicts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from sweep_support import go_on, ran, started, write

from rlc.cli.main import main
from rlc.plan.sweeps import Trial
from rlc.runtime.records import RunError
from rlc.sweeps.folder import read_sweep
from rlc.sweeps.journal import SweepSummary
from rlc.sweeps.run import SweepRun

SWEEP = """
sweep rates {{
  of = main  over = {{ rate = [1e-4, 1e-3, 1e-2] }}  seeds = {seeds}  metric = held.pass_at_1
}}
claim clear {{
  of = rates  that = at(rate == 1e-2) > at(rate == 1e-4)  level = 90%  early = {early}
}}
"""
SECOND = (
    "claim close { of = rates  that = at(rate == 1e-3) >= at(rate == 1e-4) - 2%  level = 90% }\n"
)
CLEAR: Mapping[str, Sequence[float]] = {
    "1e-4": [0.1, 0.12, 0.11, 0.13],
    "1e-3": [0.2, 0.05, 0.3, 0.1],
    "1e-2": [0.8, 0.83, 0.8, 0.9],
}
UNCLEAR = {**CLEAR, "1e-2": [0.05, 0.3, 0.08, 0.2]}


class Scripted:
    """Trials that end at once, with the values of a table; one without a value fails."""

    def __init__(
        self, patch: pytest.MonkeyPatch, values: Mapping[str, Sequence[float | None]]
    ) -> None:
        self.values, self.ran = values, list[tuple[int, int]]()
        patch.setattr(SweepRun, "_run_job", lambda _, trial, *__: self.run(trial))

    def run(self, trial: Trial) -> tuple[str, str, float]:
        self.ran.append((trial.seed, trial.number))
        value = self.values[trial.configuration["rate"]][trial.seed - 1]
        if value is None:
            raise RunError("no service")
        return "finished", "", value


def sweep(folder: Path, seeds: int = 4, early: str = "true", more: str = "") -> Path:
    return write(folder, SWEEP.format(seeds=seeds, early=early) + more)


def states(summary: SweepSummary, rate: str) -> list[str]:
    return [r.state for r in summary.trials if r.trial.configuration["rate"] == rate]


def test_what_is_decided_is_run_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seed by seed; the configuration that nobody claims anything of runs with all of its seeds."""
    scripted = Scripted(monkeypatch, CLEAR)
    summary = ran(started(sweep(tmp_path), tmp_path / "sweep"))
    assert scripted.ran == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2)]
    assert states(summary, "1e-2") == states(summary, "1e-4") == ["finished"] * 2 + ["decided"] * 2
    (claim,) = summary.claims
    assert claim.verdict == "holds"
    assert claim.values == pytest.approx([0.7, 0.71])
    assert summary.best is not None
    assert summary.best.configuration == {"rate": "1e-2"}  # that it was ended is no blemish
    written = json.loads((tmp_path / "sweep" / "claims.json").read_text())
    assert [(one["name"], one["verdict"]) for one in written] == [("clear", "holds")]
    assert read_sweep(tmp_path / "sweep").claims == summary.claims


def test_without_early_looks_all_of_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted = Scripted(monkeypatch, CLEAR)
    summary = ran(started(sweep(tmp_path, early="false"), tmp_path / "sweep"))
    assert len(scripted.ran) == 12
    assert [claim.verdict for claim in summary.claims] == ["holds"]


def test_several_claims_have_to_be_clearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another claim still needs goes on, and each is corrected for their number."""
    Scripted(monkeypatch, CLEAR)
    summary = ran(started(sweep(tmp_path, more=SECOND), tmp_path / "sweep"))
    assert {claim.plan.name: claim.verdict for claim in summary.claims} == {
        "clear": "holds",
        "close": "cannot tell",
    }
    assert "decided" not in states(summary, "1e-4")
    (close,) = (claim for claim in summary.claims if claim.plan.name == "close")
    assert close.seeds_needed is not None
    assert close.seeds_needed > 4
    assert any("seeds would tell" in line for line in close.lines)


def test_a_seed_without_its_pair_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And tried again when the sweep goes on, as are trials that then turn out to be needed."""
    failing: Mapping[str, Sequence[float | None]] = {**CLEAR, "1e-2": [0.8, None, 0.83, 0.82]}
    Scripted(monkeypatch, failing)
    summary = ran(started(sweep(tmp_path), tmp_path / "sweep"))
    (claim,) = summary.claims
    assert claim.verdict == "holds"
    assert "without seed 2: trial 3 failed: no service" in claim.lines
    assert states(summary, "1e-2") == ["finished", "failed", "finished", "decided"]
    again = Scripted(monkeypatch, {**CLEAR, "1e-2": [0.8, 0.1, 0.83, 0.82]})
    summary = ran(go_on(tmp_path / "sweep"))
    assert set(again.ran) == {(2, 3), (4, 1), (4, 3)}
    assert len(summary.claims[0].values) == 4


def test_a_sweep_goes_on_with_its_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped and resumed, or two trials at once: the verdict is that of a run without a break."""
    Scripted(monkeypatch, UNCLEAR)
    whole = ran(started(sweep(tmp_path), tmp_path / "whole")).claims
    ran(started(sweep(tmp_path), tmp_path / "two", jobs=3))
    assert read_sweep(tmp_path / "two").claims == whole
    made = started(sweep(tmp_path), tmp_path / "stopped")
    stopping = Scripted(monkeypatch, UNCLEAR)

    def stop(self: Any, trial: Trial, *more: Any) -> Any:
        if trial.seed == 2:
            made.stop()
        return stopping.run(trial)

    monkeypatch.setattr(SweepRun, "_run_job", stop)
    assert ran(made).state == "interrupted"
    Scripted(monkeypatch, UNCLEAR)
    assert ran(go_on(tmp_path / "stopped")).claims == whole
    sweep(tmp_path, more=SECOND)
    with pytest.raises(RunError, match=r"something else than what .*: claims"):
        go_on(tmp_path / "stopped")


def test_the_command_says_it_and_fails_only_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Scripted(monkeypatch, UNCLEAR)
    recipe = str(sweep(tmp_path))
    assert main(["sweep", recipe, "--quiet", "--run-dir", "one"]) == 0
    said = capsys.readouterr().out
    assert "claim clear: cannot tell (90 %): at(rate == 1e-2) > at(rate == 1e-4)" in said
    assert main(["sweep", recipe, "--json", "--strict", "--run-dir", "two"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert (data["state"], data["claims"][0]["verdict"]) == ("finished", "cannot tell")
    assert data["claims"][0]["differences"]["2"] == pytest.approx(0.18)


def test_a_sweep_of_an_earlier_version_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal says nothing of claims."""
    Scripted(monkeypatch, CLEAR)
    plain = SWEEP.split("claim")[0].format(seeds=2)
    made = started(write(tmp_path, plain), tmp_path / "sweep")
    record = json.loads(made.folder.journal.meta("sweep") or "")
    del record["claims"]
    made.folder.journal.set_meta(sweep=json.dumps(record))
    ran(made)
    assert read_sweep(tmp_path / "sweep").claims == []
    assert ran(go_on(tmp_path / "sweep")).state == "finished"
    assert not (tmp_path / "sweep" / "claims.json").exists()
