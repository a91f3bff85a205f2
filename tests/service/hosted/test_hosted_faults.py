"""Bad days of a served engine, through the official SDK: refusals, silence, restarts, death."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import http_testing as testing
import pytest
from engine_tinker import EngineTinker, engine_tinker
from hosted_support import hosted_plan

from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer, Summary
from rlc.service.hosted.connect import connect_service
from rlc.service.http import Server
from rlc.service.interface import ServiceLostError
from rlc.service.server.faults import Faults

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

OVERLAPS = {
    "synchronous": {"main__overlap": "synchronous()"},
    "streamed": {"main__overlap": "streamed(minibatches = 2, order = fixed)"},
    "asynchronous": {"main__loss": "ppo()", "main__overlap": "asynchronous(max_staleness = 2)"},
}


def overlaps(sample: str) -> pytest.MarkDecorator:
    """All of them with RLC_EVERY_FAULT in the environment, else one, another for each test."""
    chosen = list(OVERLAPS) if os.environ.get("RLC_EVERY_FAULT") else [sample]
    return pytest.mark.parametrize("overlap", chosen)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.metrics: list[dict[str, Any]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: int, metrics: Any) -> None:
        self.metrics.append(metrics)


def plan(overlap: str = "synchronous", deadlines: str = "deadlines()", **fields: str) -> Plan:
    small = {"main__batch": "groups(2, group_size = 2)", "main__sampling": "sample(max_tokens = 6)"}
    return hosted_plan(1, main__deadlines=deadlines, **small, **OVERLAPS[overlap], **fields)


def run(folder: RunFolder, server: EngineTinker, seen: Notes | None = None) -> Summary:
    service = connect_service(folder.plan, folder.path / "checkpoints", server.url)
    try:
        return asyncio.run(Job(folder, service, seen or Notes()).run())
    finally:
        folder.close()


def rewards(path: Path) -> list[Any]:
    folder = RunFolder.resume(path)
    try:
        return [(r["step"], r["task"], r["reward"]) for r in folder.read("rollouts.jsonl")]
    finally:
        folder.close()


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, _own_credentials: None) -> None:
    monkeypatch.setenv("TINKER_API_KEY", "tml-a-key-for-tests")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The rewards of the job in each overlap, made when first asked for."""
    known: dict[str, list[Any]] = {}

    def of(overlap: str) -> list[Any]:
        if overlap not in known:
            root = tmp_path_factory.mktemp("calm")
            with engine_tinker(root / "server") as server:
                run(RunFolder.create(root / "run", plan(overlap)), server)
            known[overlap] = rewards(root / "run")
        return known[overlap]

    return of


@pytest.mark.usefixtures("hurried")
@overlaps("asynchronous")
def test_a_storm_of_refusals_changes_nothing_but_the_pace(
    tmp_path: Path, overlap: str, undisturbed: Any
) -> None:
    seen, faults = Notes(), Faults(too_many=0.3, errors=0.05, drops=0.05, seed=3)
    with engine_tinker(tmp_path / "server", faults) as server:
        run(RunFolder.create(tmp_path / "run", plan(overlap)), server, seen)
        assert server.answers[429] > 3
    assert rewards(tmp_path / "run") == undisturbed(overlap)
    assert sum(m["service/backoffs"] for m in seen.metrics) >= 1
    assert seen.metrics[-1]["service/concurrency"] < 512


@pytest.mark.usefixtures("hurried")
@overlaps("streamed")
def test_a_queue_that_is_full_is_told_and_waited_for(
    tmp_path: Path, overlap: str, undisturbed: Any
) -> None:
    seen = Notes()
    with engine_tinker(tmp_path / "server", Faults(paused=0.4, seed=3)) as server:
        run(RunFolder.create(tmp_path / "run", plan(overlap)), server, seen)
    assert rewards(tmp_path / "run") == undisturbed(overlap)
    assert any("waiting for the service" in note for note in seen.notes)
    assert sum(m["service/backoffs"] for m in seen.metrics) >= 1


@overlaps("streamed")
def test_a_promise_that_is_never_kept_ends_the_run_and_a_resumed_one_agrees(
    tmp_path: Path, overlap: str, undisturbed: Any
) -> None:
    """One answer in the middle of the run is stuck; the server is well again afterwards."""
    started = time.monotonic()
    with engine_tinker(tmp_path / "server") as server:

        class Sticks(Notes):
            def step(self, step: int, metrics: Any) -> None:
                assert server.backend is not None
                server.backend.disturbances.faults = Faults(stuck=1.0)

        job = plan(overlap, "deadlines(request = 1s)")
        with pytest.raises(ServiceLostError, match="answered nothing for 1 s, and owes"):
            run(RunFolder.create(tmp_path / "run", job), server, Sticks())
        assert time.monotonic() - started < 30
        assert server.backend is not None
        server.backend.disturbances.faults = Faults()
        run(RunFolder.resume(tmp_path / "run"), server)
    assert rewards(tmp_path / "run") == undisturbed(overlap)


@pytest.mark.usefixtures("hurried")
def test_a_server_that_keeps_restarting_is_outlived(tmp_path: Path, undisturbed: Any) -> None:
    """`restarts` forgets all sessions: each ends the run, and a resume goes on with its steps."""
    with engine_tinker(tmp_path / "server", Faults(restarts=0.02, seed=2)) as server:
        folder, lost = RunFolder.create(tmp_path / "run", plan()), 0
        for _ in range(40):
            try:
                summary = run(folder, server)
                break
            except ServiceLostError:
                lost += 1
                folder = RunFolder.resume(tmp_path / "run")
    assert lost > 0
    assert summary.state == "finished"
    assert rewards(tmp_path / "run") == undisturbed("synchronous")


@overlaps("asynchronous")
def test_a_server_that_dies_is_missed_within_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: str
) -> None:
    sockets: list[Server] = []

    class Known(Server):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            sockets.append(self)

    class Dies(Notes):
        died = 0.0

        def step(self, step: int, metrics: Any) -> None:
            self.died = time.monotonic()
            sockets[0].should_exit = sockets[0].force_exit = True

    monkeypatch.setattr(testing, "Server", Known)
    seen = Dies()
    with engine_tinker(tmp_path / "server") as server:
        job = plan(overlap, "deadlines(unreachable = 1s)", main__steps="200")  # it dies in time
        with pytest.raises(ServiceLostError, match=r"cannot reach .*; it owes") as error:
            run(RunFolder.create(tmp_path / "run", job), server, seen)
        assert time.monotonic() - seen.died < 15
    assert "resumed" in str(error.value.hint)
    assert any("trying for 1 s" in note for note in seen.notes)
    RunFolder.resume(tmp_path / "run").close()  # as good as before
