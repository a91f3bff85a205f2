"""Each failure of the service or the network is one sentence, which says if the run is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import numpy as np
import pytest
from stub_tinker import StubTinker, stub_tinker
from tinker import types
from tinker.lib import queue_state_logger
from tinker.lib.internal_client_holder import InternalClientHolder

from rlc.service import tiny
from rlc.service.hosted.clients import HostedTrainingClient
from rlc.service.hosted.endpoint import Endpoint
from rlc.service.hosted.service import HostedService
from rlc.service.interface import ServiceError, ServiceLostError, UndeletableError

KEY = "tml-secret"
pytestmark = [pytest.mark.server, pytest.mark.usefixtures("hurried")]


class Heard:
    """Keeps what a service reports."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.times_pressed = 0
        self.events: list[dict[str, Any]] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def pressed(self) -> None:
        self.times_pressed += 1

    def record(self, event: dict[str, Any]) -> None:
        self.events.append(event)


@pytest.fixture
def server() -> Any:
    with stub_tinker() as stub:
        info = {"model_name": "Qwen/Qwen3-8B", "tokenizer_id": str(tiny.path())}
        stub.answers["get_info"] = (
            200,
            {"type": "get_info", "model_id": "session-1:train:0", "model_data": info},
        )
        stub.answers["client/config"] = (200, {"billing_exception_max_pause_duration_sec": 20})
        yield stub


Use = Callable[[HostedService, HostedTrainingClient], Awaitable[Any]]


def datum() -> types.Datum:
    ones = types.TensorData.from_numpy(np.ones(2, dtype=np.float32))
    targets = types.TensorData.from_numpy(np.array([2, 3], dtype=np.int64))
    return types.Datum(
        model_input=types.ModelInput.from_ints([1, 2]),
        loss_fn_inputs={"target_tokens": targets, "weights": ones},
    )


async def train(_: HostedService, client: HostedTrainingClient) -> Any:
    return await client.forward_backward([datum()], "cross_entropy")


async def sample(service: HostedService, _: HostedTrainingClient) -> Any:
    sampler = await service.create_sampling_client(base_model="Qwen/Qwen3-8B")
    params = types.SamplingParams(max_tokens=2)
    return await sampler.sample(types.ModelInput.from_ints([1, 2]), 1, params)


async def save(_: HostedService, client: HostedTrainingClient) -> Any:
    return await client.save_state("main-1", overwrite=True)


async def nothing(_: HostedService, __: HostedTrainingClient) -> None:
    pass


def refusal(server: StubTinker, use: Use, patience: float = 1e6) -> tuple[ServiceError, Heard]:
    heard = Heard()

    async def run() -> None:
        service = HostedService(Endpoint(server.url, KEY), {"rlc_run": "r"})
        service.patience.seconds = patience
        service.listen(heard)
        try:
            await use(service, await service.create_lora_training_client("Qwen/Qwen3-8B", rank=4))
        finally:
            await service.close("errored")

    with pytest.raises(ServiceError) as caught:
        asyncio.run(run())
    shown = f"{caught.value} {caught.value.hint}"
    assert "\n" not in shown
    assert KEY not in shown
    return caught.value, heard


SENTENCES = {
    401: "does not accept the key: so it is",
    402: "paused this account until its billing is in order: so it is",
    403: "not allowed to do that",
    404: "does not know what was asked for: so it is",
    409: "reports a conflict: so it is",
    410: "has finished this session: so it is",
    429: "keeps refusing requests as too many, after all retries: so it is",
    503: "keeps failing (HTTP 503), after all retries: so it is",
}


@pytest.mark.parametrize(
    ("endpoint", "use", "statuses"),
    [
        ("create_model", nothing, SENTENCES),
        ("forward_backward", train, [402, 410, 429]),
        ("save_weights", save, [403, 409]),
    ],
    ids=["create", "train", "save"],
)
def test_each_status_that_ends_a_run_has_its_sentence(
    server: StubTinker, endpoint: str, use: Use, statuses: Iterable[int]
) -> None:
    for status in statuses:
        server.answers[endpoint] = (status, {"detail": "so it is."})
        error, _ = refusal(server, use)
        assert SENTENCES[status] in str(error)
        assert server.url in str(error) or "this key" in str(error)
        assert isinstance(error, ServiceLostError)


@pytest.mark.parametrize("status", [401, 402, 404, 410])
def test_a_sampling_request_says_the_same(server: StubTinker, status: int) -> None:
    server.answers["asample"] = (status, {"detail": "so it is"})
    error, _ = refusal(server, sample)
    assert isinstance(error, ServiceLostError)
    assert "so it is" in str(error)


def test_sampling_that_stays_too_much_is_given_up(server: StubTinker) -> None:
    """The SDK itself would ask for ever."""
    server.answers["asample"] = (429, {"detail": "too many"})
    error, _ = refusal(server, sample, patience=0.3)
    assert "has answered nothing for" in str(error)
    assert isinstance(error, ServiceLostError)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_is_wrong_itself_loses_nothing_else(server: StubTinker, status: int) -> None:
    server.answers["asample"] = (status, {"detail": [{"msg": "the prompt is too long"}]})
    error, _ = refusal(server, sample)
    assert "the prompt is too long" in str(error)
    assert not isinstance(error, ServiceLostError)


@pytest.mark.parametrize(
    ("category", "said"), [("user", "refused a request"), ("server", "a request failed on")]
)
def test_a_request_that_fails_later_gives_the_servers_words(
    server: StubTinker, category: str, said: str
) -> None:
    server.answers["forward_backward"] = (200, {"request_id": "bad"})
    server.futures["bad"] = (200, {"error": "no such loss: xyz.", "category": category})
    error, _ = refusal(server, train)
    assert said in str(error)
    assert str(error).endswith("no such loss: xyz")


def test_a_refused_session_is_a_sentence(server: StubTinker) -> None:
    server.answers["create_session"] = (403, {"detail": "the project is read-only"})
    assert "the project is read-only" in str(refusal(server, nothing)[0])


def ended(session: InternalClientHolder) -> bool:
    heartbeats = session._session_heartbeat_task
    assert heartbeats is not None

    async def wait() -> bool:
        return bool((await asyncio.wait([heartbeats], timeout=5))[0])

    return session.run_coroutine_threadsafe(wait()).result()


def test_a_server_that_goes_away_is_unreachable(server: StubTinker) -> None:
    sessions = []

    async def use(service: HostedService, client: HostedTrainingClient) -> None:
        sessions.append(service._sdk._get_session_holder())
        server.shutdown()
        server.server_close()
        server.drop_connections()
        await train(service, client)

    error, _ = refusal(server, use)
    assert f"cannot reach {server.url}" in str(error)
    assert isinstance(error, ServiceLostError)
    assert ended(sessions[0]), "the heartbeats of a lost session would go on"


def test_a_full_queue_is_waited_for_aloud_and_not_for_ever(
    server: StubTinker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_state_logger, "PAUSE_GRACE_PERIOD", 0, raising=False)
    server.answers["forward_backward"] = (200, {"request_id": "queued"})
    full = {"queue_state": "paused_capacity", "queue_state_reason": "no machine is free"}
    server.futures["queued"] = (408, {"detail": "not yet", **full})
    error, heard = refusal(server, train, patience=0.3)
    assert "has answered nothing for" in str(error)
    assert str(error).endswith("waiting for the service: no machine is free")
    assert "resumed" in str(error.hint)
    assert heard.notes == ["waiting for the service: no machine is free"]


def test_a_billing_pause_is_said_when_it_begins(server: StubTinker) -> None:
    server.answers["forward_backward"] = (402, {"detail": "pay"})
    _, heard = refusal(server, train)
    assert heard.notes[0].startswith("the service has paused this account for its billing")


def test_a_tokenizer_that_cannot_be_had_is_named(server: StubTinker) -> None:
    del server.answers["get_info"]
    error, _ = refusal(server, nothing)
    assert "cannot load the tokenizer `/nowhere`" in str(error)


def test_sessions_and_models_carry_the_run_and_are_recorded(server: StubTinker) -> None:
    server.answers["forward_backward"] = (401, {})
    _, heard = refusal(server, train)
    session, model = heard.events
    assert (session["event"], session["session_id"]) == ("session", "session-1")
    assert (model["event"], model["model_id"]) == ("model", "session-1:train:0")
    sent = {endpoint: body for endpoint, body in server.requests if "create" in endpoint}
    assert sent["create_session"]["user_metadata"] == {"rlc_run": "r"}
    assert sent["create_model"]["user_metadata"] == {"rlc_run": "r"}
    (finish,) = (body for endpoint, body in server.requests if endpoint.endswith("/finish"))
    assert finish["reason"] == {"type": "errored"}


def test_deleting_what_is_gone_is_no_error(server: StubTinker) -> None:
    service = HostedService(Endpoint(server.url, KEY))
    path = "tinker://session-1:train:0/weights/main-1"
    endpoint = "training_runs/session-1:train:0/checkpoints/weights/main-1"
    asyncio.run(service.delete_checkpoint(path))
    assert endpoint in [asked for asked, _ in server.requests]
    server.answers[endpoint] = (404, {"detail": "gone"})
    server.answers["weights_info"] = (404, {"detail": "gone"})
    asyncio.run(service.delete_checkpoint(path))
    server.answers[endpoint] = (403, {"detail": "not yours"})
    with pytest.raises(ServiceError, match="not yours"):
        asyncio.run(service.delete_checkpoint(path))


@pytest.mark.parametrize("status", [404, 405])
def test_a_server_without_deletion_is_told_from_one_that_has_deleted(
    server: StubTinker, status: int
) -> None:
    service = HostedService(Endpoint(server.url, KEY))
    endpoint = "training_runs/session-1:train:0/checkpoints/weights/main-1"
    server.answers[endpoint] = (status, {"detail": "Not Found"})
    server.answers["weights_info"] = (200, {"base_model": "Qwen/Qwen3-8B", "is_lora": True})
    with pytest.raises(UndeletableError, match=f"{server.url} does not delete checkpoints such as"):
        asyncio.run(service.delete_checkpoint("tinker://session-1:train:0/weights/main-1"))


def test_a_path_that_the_sdk_cannot_read_is_not_deleted(server: StubTinker) -> None:
    service = HostedService(Endpoint(server.url, KEY))
    with pytest.raises(UndeletableError, match="such as tinker://model/main-1"):
        asyncio.run(service.delete_checkpoint("tinker://model/main-1"))
