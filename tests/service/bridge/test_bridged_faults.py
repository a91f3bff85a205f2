"""Bad days of a SkyRL server: each ends with a clear error or goes on exactly, and nothing is lost.

Where a run ends, it is resumed when the server is well again, and comes to the end that it would
have come to.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bridge_support import (
    Start,
    Watcher,
    assert_same_numbers,
    at,
    numbers,
    run_on,
    small_job,
    there,
)
from run_support import compiled
from serving_support import policy_data
from skyrl_server import SkyRLServer
from tinker import types

from rlc.cli.main import main
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import RunError
from rlc.service.bridge import app
from rlc.service.hosted.connect import require_service
from rlc.service.interface import ServiceClient, ServiceError, ServiceLostError

pytestmark = [pytest.mark.plain, pytest.mark.server, pytest.mark.slow]

ADAM = types.AdamParams(learning_rate=3e-3)
Spoil = Callable[[SkyRLServer], object]
JOB = small_job(deadlines="deadlines(unreachable = 1s)")
OF_THREE = small_job(steps="3")


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    path = tmp_path_factory.mktemp("here") / "run"
    run_on(RunFolder.create(path, compiled(OF_THREE)))
    return numbers(path)


@pytest.fixture
def expected(of_three: list[dict[str, float]]) -> list[dict[str, float]]:
    return of_three[:2]


def ends(path: Path, server: SkyRLServer, spoil: Spoil, after: int = 1) -> ServiceError:
    """What a run says that ends because of something that happens after a step."""
    watcher = Watcher(lambda step: spoil(server) if step == after else None)
    job = there(JOB if after == 1 else OF_THREE)
    with pytest.raises(ServiceError) as error:
        run_on(RunFolder.create(path, job), server, watcher)
    return error.value


def resumes(path: Path, server: SkyRLServer, expected: list[dict[str, float]]) -> None:
    app.close_bridges()  # a new process has a new one
    assert run_on(RunFolder.resume(path), server).state == "finished"
    assert_same_numbers(path, expected)


def test_a_server_that_dies_is_missed_within_seconds(
    tmp_path: Path, start: Start, expected: list[dict[str, float]]
) -> None:
    server, since = start(), time.monotonic()
    error = ends(tmp_path / "run", server, lambda server: server.stop())
    assert time.monotonic() - since < 30
    assert isinstance(error, ServiceLostError)
    assert f"cannot reach {server.url}" in str(error)
    assert "resumed" in str(error.hint)
    server.start()
    resumes(tmp_path / "run", server, expected)


@pytest.mark.parametrize(
    ("protobuf", "spoil"),
    [(False, SkyRLServer.forget_sessions), (True, SkyRLServer.restart)],
)
def test_what_forgets_its_models_is_named_and_a_resumed_run_agrees(
    tmp_path: Path, start: Start, expected: list[dict[str, float]], protobuf: bool, spoil: Spoil
) -> None:
    """The session was silent for too long; the server came back with its database."""
    server = start(in_protobuf=protobuf)
    error = ends(tmp_path / "run", server, spoil)
    assert re.search(r"no longer knows what .*\(Model model_\w+ not loaded", str(error)), error
    assert "resumed from its last checkpoint" in str(error)
    resumes(tmp_path / "run", server, expected)


def test_a_server_that_starts_empty_has_lost_the_run(tmp_path: Path, start: Start) -> None:
    server = start()
    # After the second: the state of the first may not be journalled yet when its metrics are.
    error = ends(tmp_path / "run", server, lambda server: server.restart(empty=True), after=2)
    assert "SkyRL no longer knows what `" in str(error)
    assert "started anew without its database" in str(error)
    app.close_bridges()
    with pytest.raises(RunError, match=r"Model not found\. It is the only one that `main` has"):
        run_on(RunFolder.resume(tmp_path / "run"), server)


def test_models_that_are_forgotten_between_samples_end_the_run(
    tmp_path: Path, start: Start, expected: list[dict[str, float]]
) -> None:
    """Instead of steps without rollouts, which would change no weights."""
    server = start()

    def spoil(server: SkyRLServer) -> None:
        server.before["asample"] = server.forget_sessions

    error = ends(tmp_path / "run", server, spoil)
    assert isinstance(error, ServiceLostError)
    assert re.search(r"no longer knows what .*\(Model model_\w+ not loaded\)", str(error))
    resumes(tmp_path / "run", server, expected)


@pytest.mark.parametrize("files_only", [False, True])
def test_a_lost_checkpoint_costs_a_step(
    tmp_path: Path, start: Start, of_three: list[dict[str, float]], files_only: bool
) -> None:
    """The one before it is there, and the run goes on from that."""
    server = start()
    watcher = Watcher(lambda step: watcher.job.stop() if step == 2 else None)  # type: ignore[union-attr]
    job = there(OF_THREE)
    run_on(RunFolder.create(tmp_path / "run", job), server, watcher)
    newest = max(key for key in server.database.checkpoints if key[1] == "weights")
    if files_only:
        server.lost_files.add(newest)
    else:
        del server.database.checkpoints[newest]
    resumes(tmp_path / "run", server, of_three)


@pytest.mark.parametrize(
    ("endpoint", "said"),
    [
        ("retrieve_future", "SkyRL failed 5 times at `retrieve_future`: database is locked"),
        ("asample", "SkyRL failed 5 times at `asample`: database is locked"),
    ],
)
def test_a_server_that_fails_for_ever_is_given_up(
    tmp_path: Path, start: Start, expected: list[dict[str, float]], endpoint: str, said: str
) -> None:
    """Its HTTP 500 is one that the SDK itself would repeat for ever."""
    server, failure = start(), (500, {"detail": "database is locked"})
    error = ends(tmp_path / "run", server, lambda s: s.broken.update({endpoint: failure}))
    assert said in str(error)
    server.broken.clear()
    resumes(tmp_path / "run", server, expected)


def test_a_failure_that_passes_is_outlived(
    tmp_path: Path, start: Start, expected: list[dict[str, float]]
) -> None:
    """Answers that are lost, of requests that the server knows again."""
    server = start()
    server.dropped.update(
        {"forward_backward": 2, "optim_step": 1, "retrieve_future": 9, "asample": 3}
    )
    job = there(JOB)
    run_on(RunFolder.create(tmp_path / "run", job), server)
    assert_same_numbers(tmp_path / "run", expected)
    assert sum(server.dropped.values()) == 0


def test_a_pass_that_fails_in_the_middle_of_a_step_takes_the_step_with_it(
    start: Start,
) -> None:
    """Of three passes the engine fails at the second. No step is taken, and none is later, of what
    is left on the server; a client of the last state goes on."""
    server = start()

    async def talk(service: ServiceClient) -> list[Any]:
        training = await service.create_lora_training_client("tiny", rank=4, seed=7)
        saved = await training.save_state("before")
        server.refused_passes.add(3)  # after the probe of averages and the first pass
        passes = [training.forward_backward(policy_data(n), "ppo") for n in range(3)]
        first = await asyncio.gather(*passes, training.optim_step(ADAM), return_exceptions=True)
        again = await asyncio.gather(
            training.forward_backward(policy_data(1), "ppo"),
            training.optim_step(ADAM),
            return_exceptions=True,
        )
        anew = await service.create_training_client_from_state_with_optimizer(saved.path)
        await anew.forward_backward(policy_data(1), "ppo")
        return [first, again, (await anew.optim_step(ADAM)).metrics]

    first, again, step = at(server, talk)
    assert "out of memory" in str(first[1])
    assert "out of memory" in str(first[-1])
    assert all("cannot be taken back from the server" in str(error) for error in again)
    assert len(server.asked("optim_step")) == 1, "that of the new client"
    assert step["grad_norm"] > 0


def test_no_room_for_another_model_is_said(tmp_path: Path, start: Start) -> None:
    server = start(most_models=0)
    with pytest.raises(ServiceError, match=r"Maximum number of LoRA adapters \(0\) reached"):
        run_on(RunFolder.create(tmp_path / "run", there(small_job())), server)


@pytest.mark.parametrize(
    "answer",
    [
        (404, {"detail": "Not Found"}),
        (200, {"openapi": "3.1", "paths": {"/v1/models": {}}}),
        (200, "<html>A page.</html>"),
        (403, {"detail": "no"}),
    ],
)
def test_what_is_no_skyrl_is_said_before_anything_is_made(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str], answer: tuple[int, Any]
) -> None:
    server = start()
    server.broken["/openapi.json"] = answer
    recipe = tmp_path / "small.rl"
    recipe.write_text(small_job())
    words = ["run", str(recipe), "--service", "skyrl", "--base-url", server.url]
    assert main([*words, "--run-dir", str(tmp_path / "run")]) != 0
    told = capsys.readouterr().err
    assert f"here is no server of SkyRL at {server.url}" in told
    assert "leave `--service skyrl` out" in told
    assert server.asked("create_session") == []
    assert not (tmp_path / "run").exists()


def test_a_model_that_is_not_there_is_said_before_anything_is_made(start: Start) -> None:
    """SkyRL itself takes any name for the one that it has."""
    server = start()
    job = there(small_job().replace('"tiny"', '"Qwen/Qwen3-8B"  renderer = qwen3_instruct'))
    with pytest.raises(ServiceError, match="has no model `Qwen/Qwen3-8B`") as error:
        require_service(job, server.url)
    assert "`tiny`" in str(error.value.hint)
