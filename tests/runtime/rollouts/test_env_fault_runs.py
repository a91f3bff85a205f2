"""Whole runs beside an environment that goes wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import faulty_games
import pytest
from run_support import TINY, compiled, metrics, rollouts, run_new, train, undisturbed

from rlc.plan.records import Plan

pytestmark = pytest.mark.plain

CAUSES = {"NaN reward": "contract", "hangs": "timeout"}
GOOD = 'env good = gem("game:GuessTheNumber-v0-easy") |> chat()\n'


def job(bad: str, on_error: str = "drop", overlap: str = "synchronous()", steps: str = "2") -> Plan:
    fields = {"batch": "groups(4, group_size = 3)", "loss": "ppo()", "steps": steps}
    stage = train(env="good + bad", on_error=on_error, overlap=overlap, **fields)
    return compiled(TINY.partition("env")[0] + GOOD + f"env bad = {bad}\n" + stage)


@pytest.fixture
def games_are_importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(Path(faulty_games.__file__).parent))
    faulty_games.RELEASE.clear()
    yield
    faulty_games.RELEASE.set()


@pytest.mark.slow
@pytest.mark.usefixtures("games_are_importable")
@pytest.mark.parametrize(
    ("kind", "overlap"),
    [("blocking", "asynchronous(max_staleness = 1)"), ("awaiting", "synchronous()")],
)
def test_a_run_goes_on_beside_an_environment_that_goes_wrong(
    kind: str, overlap: str, tmp_path: Path
) -> None:
    """One member of each of its groups fails in its second step, in each way."""

    def source(fault: str) -> str:
        seconds = 1 if fault == "hangs" else 60  # of the others none is to be slow
        limits = f"rollouts(step_timeout = {seconds}s, max_turns = 4)"
        args = f'{{ fault = "{fault}", faulty = 1 }}'
        return f'python("faulty_games:{kind}", args = {args}) |> chat() |> {limits}'

    fine = undisturbed(job(source("none"), overlap=overlap, steps="1"))
    good = [r for r in rollouts(fine) if r["env"] == "good"]
    for fault in ("NaN reward", "hangs", "endless"):
        path = tmp_path / fault.replace(" ", "-")
        run_new(path, job(source(fault), overlap=overlap))
        played = rollouts(path)
        cut_short = [r for r in played if r["ended"] == "turns"]
        failed = [r for r in played if r["error"]]
        assert {(r["env"], r["member"]) for r in failed + cut_short} == {("bad", 1)}
        assert len(cut_short if fault == "endless" else failed) == 2 * 2
        assert {r["cause"] for r in failed} == ({CAUSES[fault]} if fault in CAUSES else set())
        assert [m.get("failed/bad", 0) for m in metrics(path)] == [len(failed) / 2] * 2
        beside = [r for r in played if r["env"] == "good" and r["step"] == 1]
        assert [(r["task"], r["digest"], r["reward"]) for r in beside] == [
            (r["task"], r["digest"], r["reward"]) for r in good
        ]


@pytest.mark.usefixtures("games_are_importable")
def test_a_run_goes_on_when_a_worker_process_dies(tmp_path: Path) -> None:
    bad = 'python("faulty_games:blocking", args = { fault = "dies", faulty = 2 }) |> chat()'
    run_new(tmp_path / "run", job(bad + " |> workers(processes, count = 1)", steps="1"))
    failed = [rollout for rollout in rollouts(tmp_path / "run") if rollout["error"]]
    assert [(r["env"], r["member"], r["cause"]) for r in failed] == [("bad", 2, "died")] * 2
    (record,) = metrics(tmp_path / "run")
    assert (record["failed/bad"], record["failures/died"]) == (2, 2)
    assert record["rollouts/played"] == 4 * 3 - 2


def test_a_record_says_where_the_time_went(tmp_path: Path) -> None:
    run_new(tmp_path / "run", compiled(TINY + train(env="guess", steps="1")))
    for line in (tmp_path / "run" / "rollouts.jsonl").read_text().splitlines():
        seconds = json.loads(line)["seconds"]
        assert set(seconds) == {"sampling", "environment"}
        assert all(value > 0 for value in seconds.values())
