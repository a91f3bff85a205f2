"""Whole runs through the official SDK: as in this process, resumed, with faults, to a budget.

What is sampled is the same to the token. The numbers behind it are not the same to the last bit
where requests run side by side: which of them share a forward pass depends on when they arrive,
and a sum of float32 depends on its order. Of three steps that leaves about 1e-6 of the metrics
and 3e-6 of the weights; the tolerances are ten times that. (One request at a time is exact:
see test_hosted_numbers.)
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from attrs import frozen
from engine_tinker import FAULTS, MODEL, EngineTinker, engine_tinker
from hosted_support import hosted_plan, with_model
from plain_service import PlainSamplingClient
from tinker import types

from rlc.plan.records import Plan
from rlc.runtime.job import Job
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.summary import Observer, Summary
from rlc.service.hosted.connect import connect_service
from rlc.service.interface import ServiceError, ServiceLostError

pytestmark = [pytest.mark.plain, pytest.mark.server]

KEY = "tml-a-key-for-tests"


class Watcher(Observer):
    """Presses Ctrl-C after a step, and keeps the notes."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.notes: list[str] = []
        self.job: Job | None = None

    def step(self, step: int, metrics: Any) -> None:
        if step == self.stop_after and self.job is not None:
            self.job.stop()

    def note(self, text: str) -> None:
        self.notes.append(text)


def run(
    folder: RunFolder, server: EngineTinker | None = None, watcher: Watcher | None = None
) -> Summary:
    """Run a folder on ``server``, or on the embedded engine."""
    watcher = watcher or Watcher()
    url = server.url if server else None
    metadata = {"rlc_run": folder.path.name}
    service = connect_service(folder.plan, folder.path / "checkpoints", url, metadata)
    job = watcher.job = Job(folder, service, watcher)
    try:
        return asyncio.run(job.run())
    finally:
        folder.close()


def lines(path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / name).read_text().splitlines()]


@frozen
class Outcome:
    """What a run has come to: its rollouts, its metrics, and its last checkpoint."""

    rollouts: list[dict[str, Any]]
    metrics: list[dict[str, Any]]
    weights: dict[str, np.ndarray[Any, np.dtype[np.float32]]]


def outcome(folder: Path, root: Path, summary: Summary) -> Outcome:
    """``root`` is where the engine saves."""
    assert summary.state == "finished"
    file = str(summary.stages[-1].checkpoint).partition("://")[2]
    return Outcome(
        [record | {"seconds": {}} for record in lines(folder, "rollouts.jsonl")],
        [comparable(record) for record in lines(folder, "metrics.jsonl")],
        safetensors.numpy.load_file(root / f"{file}.safetensors"),
    )


def comparable(metrics: dict[str, Any]) -> dict[str, Any]:
    """A step's metrics without times and prices. How much of a prompt is already cached depends
    on when its request arrives; its length does not."""
    left_out = ("time/", "spend/", "service/", "stage")
    kept = {k: v for k, v in metrics.items() if not k.startswith(left_out)}
    return kept | {"tokens/prompt": kept.pop("tokens/prefill") + kept.pop("tokens/cached")}


def assert_same(told: Outcome, expected: Outcome) -> None:
    assert told.rollouts == expected.rollouts
    for step, expected_step in zip(told.metrics, expected.metrics, strict=True):
        assert step == pytest.approx(expected_step, rel=1e-5, abs=1e-6)
    assert told.weights.keys() == expected.weights.keys()
    for name, array in expected.weights.items():
        if name.startswith("adapter/"):
            np.testing.assert_allclose(told.weights[name], array, rtol=0, atol=3e-5)


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch, _own_credentials: None) -> None:
    monkeypatch.setenv("TINKER_API_KEY", KEY)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What the job comes to on the double in this process."""
    return in_process(tmp_path_factory.mktemp("here") / "run", hosted_plan())


def in_process(path: Path, job: Plan) -> Outcome:
    """What a job comes to without a server."""
    plan = with_model(job, base="tiny", service="local", context=8192)
    return outcome(path, path / "checkpoints", run(RunFolder.create(path, plan)))


def through(server: EngineTinker, folder: RunFolder) -> Outcome:
    """What a run on a server comes to."""
    return outcome(folder.path, server.root, run(folder, server))


@pytest.mark.engine
def test_a_run_is_the_same_through_the_sdk(tmp_path: Path) -> None:
    here = in_process(tmp_path / "here", hosted_plan())
    with engine_tinker(tmp_path / "server") as server:
        told = through(server, RunFolder.create(tmp_path / "run", hosted_plan()))
        assert_same(told, here)
        assert len(server.checkpoints()) == 2  # keep = 2


def test_a_loss_of_recorded_sequences_is_the_same_through_the_sdk(tmp_path: Path) -> None:
    """Chats of several turns, asynchronously: snapshots by name, spans of alternating kinds."""
    far = hosted_plan(
        main__loss="stable_reinforce(kl_coeff = 0.1)",
        main__overlap="asynchronous(max_staleness = 2)",
    )
    here = in_process(tmp_path / "here", far)
    with engine_tinker(tmp_path / "server") as server:
        told = through(server, RunFolder.create(tmp_path / "run", far))
        assert_same(told, here)
    probes = [r for r in lines(tmp_path / "run", "service.jsonl") if r["event"] == "loss probe"]
    assert [probe["loss"] for probe in probes] == ["stable_reinforce"]


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path, here: Outcome) -> None:
    with engine_tinker(tmp_path / "server") as server:
        stopped = run(RunFolder.create(tmp_path / "run", hosted_plan()), server, Watcher(1))
        assert stopped.state == "interrupted"
        assert_same(through(server, RunFolder.resume(tmp_path / "run")), here)
        ends = [b["reason"]["type"] for name, b in server.requests if name.endswith("/finish")]
        assert ends == ["interrupted", "success"]


@pytest.mark.usefixtures("hurried")
def test_a_run_with_faults_ends_the_same(tmp_path: Path, here: Outcome) -> None:
    """5 % of the requests each refused, failed, cut off before or after the work, or slow."""
    with engine_tinker(tmp_path / "server", FAULTS) as server:
        assert_same(through(server, RunFolder.create(tmp_path / "run", hosted_plan())), here)
        assert all(server.answers[kind] > 0 for kind in (429, 500, "dropped"))


def test_a_server_that_restarts_costs_no_more_than_the_running_step(
    tmp_path: Path, here: Outcome
) -> None:
    with engine_tinker(tmp_path / "server") as server:

        class Restarts(Watcher):
            def step(self, step: int, metrics: Any) -> None:
                assert server.backend is not None
                server.backend.restart()

        with pytest.raises(ServiceLostError):
            run(RunFolder.create(tmp_path / "run", hosted_plan()), server, Restarts())
        assert_same(through(server, RunFolder.resume(tmp_path / "run")), here)


def test_the_folder_tells_what_to_look_for_on_a_bill(tmp_path: Path) -> None:
    with engine_tinker(tmp_path / "server") as server:
        run(RunFolder.create(tmp_path / "run-7", hosted_plan(main__steps="1")), server)
    events = {event["event"]: event for event in lines(tmp_path / "run-7", "service.jsonl")}
    session = events["session"]["session_id"]
    assert events["session"]["server"] == server.url
    assert events["model"]["model_id"] == f"{session}:train:0"
    assert events["model"]["base"] == MODEL
    metadata = {"rlc_run": "run-7", "rlc_stage": "main", "renderer_name": "qwen3_instruct"}
    assert events["model"]["metadata"] == metadata
    assert events["loss probe"]["told"] == pytest.approx(events["loss probe"]["expected"], rel=1e-4)
    assert events["seed probe"]["distinct"] is True
    (created,) = server.asked("create_model")
    assert created["user_metadata"] == metadata


def test_the_key_is_written_nowhere(tmp_path: Path) -> None:
    with engine_tinker(tmp_path / "server") as server:
        run(RunFolder.create(tmp_path / "run", hosted_plan(main__steps="1")), server)
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


@pytest.mark.engine  # whose steps cost about the same
def test_a_budget_stops_with_a_checkpoint_and_counts_every_token(tmp_path: Path) -> None:
    plan = hosted_plan(main__budget="$0.001", main__steps="40", main__save="every(20)")
    with engine_tinker(tmp_path / "server") as server:
        summary = run(RunFolder.create(tmp_path / "run", plan), server)
        assert summary.state == "budget"
        assert summary.stages[0].checkpoint in server.checkpoints()
    assert 0 < len(summary.stages[0].values) < 40
    steps = lines(tmp_path / "run", "metrics.jsonl")
    usd = sum(
        step["tokens/prefill"] * 0.195
        + step["tokens/cached"] * 0.039
        + step["tokens/sampled"] * 0.60
        + step["tokens/trained"] * 0.44
        for step in steps
    )
    probes = summary.spent_usd - usd / 1e6
    assert 0 < probes < 1e-4
    assert summary.spent_usd <= 0.001
    assert steps[-1]["spend/usd"] == pytest.approx(summary.spent_usd)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(
    ("endpoint", "status", "said"),
    [
        ("asample", 410, "has finished this session"),
        ("forward_backward", 429, "keeps refusing requests"),
        ("save_weights", 503, "keeps failing"),
    ],
)
def test_what_the_service_refuses_in_a_run_leaves_it_resumable(
    tmp_path: Path, here: Outcome, endpoint: str, status: int, said: str
) -> None:
    """From the second step on; after that the service is well again."""
    with engine_tinker(tmp_path / "server") as server:
        server.broken["client/config"] = (200, {"billing_exception_max_pause_duration_sec": 20})

        class Breaks(Watcher):
            def step(self, step: int, metrics: Any) -> None:
                server.broken[endpoint] = (status, {"detail": "so it is"})

        with pytest.raises(ServiceLostError, match=said):
            run(RunFolder.create(tmp_path / "run", hosted_plan()), server, Breaks())
        server.broken.clear()
        assert_same(through(server, RunFolder.resume(tmp_path / "run")), here)


def test_a_model_that_is_not_there_is_said_before_anything_is_made(tmp_path: Path) -> None:
    plan = with_model(hosted_plan(), base="Qwen/Qwen3.5-4B")
    with engine_tinker(tmp_path / "server") as server:
        with pytest.raises(ServiceError, match=r"has no model `Qwen/Qwen3\.5-4B`"):
            run(RunFolder.create(tmp_path / "run", plan), server)
        assert server.asked("create_session") == []


def test_a_checkpoint_that_cannot_be_deleted_ends_no_run(tmp_path: Path) -> None:
    watcher = Watcher()
    with engine_tinker(tmp_path / "server") as server:
        server.broken["training_runs"] = (403, {"detail": "deleting is switched off"})
        summary = run(RunFolder.create(tmp_path / "run", hosted_plan()), server, watcher)
    assert summary.state == "finished"
    assert "is not deleted yet" in watcher.notes[-1]


def test_a_server_that_cannot_delete_is_said_once(tmp_path: Path) -> None:
    watcher = Watcher()
    with engine_tinker(tmp_path / "server") as server:
        server.broken["training_runs"] = (404, {"detail": "Not Found"})
        run(RunFolder.create(tmp_path / "run", hosted_plan()), server, watcher)
        assert len(server.checkpoints()) == 3
    (said,) = (note for note in watcher.notes if "delete" in note)
    assert said.endswith("those that are not needed any more stay there")


def test_a_server_that_repeats_its_samples_is_worked_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PlainSamplingClient.sample

    async def repeat(client: PlainSamplingClient, *request: Any) -> types.SampleResponse:
        prompt, count, *rest = request
        response = await real(client, prompt, 1, *rest)
        return replace(response, sequences=list(response.sequences) * count)

    monkeypatch.setattr(PlainSamplingClient, "sample", repeat)
    watcher = Watcher()
    with engine_tinker(tmp_path / "server") as server:
        run(RunFolder.create(tmp_path / "run", hosted_plan(main__steps="1")), server, watcher)
    assert "repeats the samples" in watcher.notes[-1]
    first = {
        record["turns"][0]["action"]
        for record in lines(tmp_path / "run", "rollouts.jsonl")
        if record["task"] == 0
    }
    assert len(first) > 1


@pytest.mark.parametrize(
    "loss",
    ["cross_entropy()", "cispo(clip_high = 2.0)", "dro(beta = 0.1)", "gspo()"],
)
def test_every_loss_trains_with_its_configuration(tmp_path: Path, loss: str) -> None:
    plan = hosted_plan(main__steps="1", main__loss=loss)
    with engine_tinker(tmp_path / "server") as server:
        assert run(RunFolder.create(tmp_path / "run", plan), server).state == "finished"
