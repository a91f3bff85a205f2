"""Expectations that are known after a run: judged at its end, and part of its exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from run_support import TINY, compiled, run, run_new, train

import rlc
from rlc.cli.main import main
from rlc.compile.variants import rehearse
from rlc.plan.expectations import ExpectationPlan, Over, QuantityPlan, TermPlan
from rlc.plan.graph import build_graph
from rlc.plan.records import Plan
from rlc.plan.stages import Training
from rlc.report.run_page import run_html
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.runs import judged_after, read_run
from rlc.runtime.records import RunError
from rlc.runtime.start import require_runnable

EVAL = (
    "eval heldout { model = main  env = guess  tasks = 4  every = 1  metrics = [mean_reward()] }\n"
)
RECIPE = TINY + train(steps="2") + EVAL
HELD = "expect heldout.mean_reward >= heldout.mean_reward.min\nexpect main.time.sum < 2h\n"
FAILED = "expect main.reward > 2\n"


def quantity(over: Over = "last", stage: str = "main") -> QuantityPlan:
    return QuantityPlan("main.x", "metric", stage, "x", "number", over)


def judged(one: ExpectationPlan, values: list[Any], done: bool = True, ended: bool = True) -> Any:
    records = [{} if value is None else {"x": value} for value in values]
    (found,) = judged_after([one], lambda _: records, lambda _: done, ended, rehearses=False)
    return found


@given(st.lists(st.none() | st.floats(-9, 9), min_size=1, max_size=8))
def test_the_steps_that_have_a_metric_decide(values: list[float | None]) -> None:
    known = [value for value in values if value is not None]
    overs: dict[Over, float] = {}
    if known:
        overs = {"last": known[-1], "first": known[0], "min": min(known), "max": max(known)}
        overs |= {"sum": sum(known), "mean": sum(known) / len(known)}
    for over, value in overs.items():
        assert judged(ExpectationPlan(quantity(over), "<=", 99), values).found == pytest.approx(
            value
        )
    if not known:
        missing = judged(ExpectationPlan(quantity(), "<=", 99), values)
        assert (missing.holds, missing.said) == (False, "it was not measured")


def test_other_quantities_count_with_their_factors() -> None:
    one = ExpectationPlan(quantity("max"), ">=", 1.0, (TermPlan(-2.0, quantity("min")),))
    found = judged(one, [1.0, 4.0])
    assert (found.holds, found.found, found.expected) == (True, 4, -1)
    assert found.said == "it is 4, to be compared with -1"


@pytest.mark.parametrize(
    ("done", "ended", "holds", "said"),
    [
        (False, False, None, "the run has not come to it"),
        (False, True, False, "the run ended before it was measured"),
        (True, True, True, "it is 3"),
    ],
)
def test_it_is_judged_once_all_is_there(done: bool, ended: bool, holds: Any, said: str) -> None:
    found = judged(ExpectationPlan(quantity(), ">", 1), [3.0], done, ended)
    assert (found.holds, found.said) == (holds, said)


def test_what_is_known_before_is_held_of_a_plan_too() -> None:
    plan = compiled(RECIPE + "expect main.steps < 10\nexpect main.reward > 2\n")
    require_runnable(plan)
    with pytest.raises(RunError, match=r"`expect main\.steps < 10` fails: it is 30"):
        require_runnable(longer(plan))
    require_runnable(rehearse(longer(plan)))


def longer(plan: Plan) -> Plan:
    stages = tuple(evolve(s, steps=30) if isinstance(s, Training) else s for s in plan.stages)
    return evolve(plan, stages=stages, graph=build_graph(stages))


@pytest.mark.plain
def test_the_exit_status_and_the_pages_say_what_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.rl").write_text(RECIPE + HELD)
    Path("bad.rl").write_text(RECIPE + HELD + FAILED)
    assert main(["run", "good.rl", "--run-dir", "runs/good", "--quiet"]) == 0
    assert "expected   passed: heldout.mean_reward" in capsys.readouterr().out
    assert main(["run", "bad.rl", "--run-dir", "runs/bad", "--quiet"]) == 3
    assert "failed: main.reward > 2   (it is " in capsys.readouterr().out
    assert main(["run", "--resume", "runs/bad", "--quiet"]) == 3  # nothing is run again
    capsys.readouterr()
    info = read_run(Path("runs/bad"))
    assert info.state == "finished"
    assert [one.holds for one in info.expectations] == [True, True, False]
    assert main(["runs"]) == 0
    listed = capsys.readouterr().out
    assert "2 of 3 passed" in listed
    assert "2 of 2 passed" in listed
    assert "runs/bad: expected main.reward > 2: it is " in listed
    assert main(["runs", "--json"]) == 0
    rows = {row["path"]: row["expectations"] for row in json.loads(capsys.readouterr().out)}
    assert [one["holds"] for one in rows["runs/bad"]] == [True, True, False]
    html = run_html(Path("runs/bad"))
    assert '<b class="bad">failed</b>: <code>main.reward &gt; 2</code>' in html
    with pytest.raises(rlc.ExpectationError, match=r"expected main\.reward > 2: it is ") as raised:
        rlc.resume("runs/bad")
    assert [one.text for one in raised.value.summary.unmet] == ["main.reward > 2"]
    assert raised.value.summary.state == "finished"
    assert rlc.resume("runs/good").unmet == []


@pytest.mark.plain
def test_an_interrupted_run_is_judged_when_it_is_resumed(tmp_path: Path) -> None:
    plan = compiled(RECIPE + HELD + FAILED)
    summary = run_new(tmp_path / "run", plan, stop_after=("main", 1))
    assert (summary.state, {one.holds for one in summary.expectations}) == ("interrupted", {None})
    assert {one.holds for one in read_run(tmp_path / "run").expectations} == {None}
    summary = run(RunFolder.resume(tmp_path / "run"))
    assert [one.holds for one in summary.expectations] == [True, True, False]


@pytest.mark.engine
@pytest.mark.plain
def test_a_budget_that_ends_before_a_measure_fulfils_nothing(tmp_path: Path) -> None:
    stage = train(steps="5", budget="limit(tokens = 10_000)")
    plan = compiled(
        TINY + stage + EVAL.replace("every = 1", "") + "expect heldout.mean_reward > -9\n"
    )
    summary = run_new(tmp_path / "run", plan)
    assert summary.state == "budget"
    (one,) = summary.unmet
    assert one.said == "the run ended before it was measured"


@pytest.mark.plain
def test_nothing_is_held_of_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    held = "expect main.steps == 5\n"
    Path("r.rl").write_text(TINY + train(steps="5") + held + FAILED)
    assert main(["run", "r.rl", "--rehearse", "--quiet", "--run-dir", "run"]) == 0
    assert "open: main.reward > 2   (a rehearsal need not learn)" in capsys.readouterr().out
    Path("r.rl").write_text(TINY + train(steps="6") + held + FAILED)
    assert main(["run", "r.rl", "--rehearse", "--quiet", "--run-dir", "other"]) == 1
    assert "RL0674" in capsys.readouterr().err
