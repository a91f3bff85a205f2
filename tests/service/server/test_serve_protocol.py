"""What is wrong with a request is said in one sentence, and nobody else is disturbed by it."""

from __future__ import annotations

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
import tinker
from http_testing import Running, running
from raw_http import JSON, PROTOBUF, Raw
from serving_support import BASE, KEY, PROMPT, policy_data, prompt, sampling, sft_data, weights
from tinker import types
from tinker.proto.request_conv import forward_backward_request_to_proto
from tinker.types.optimizer import DimuonOptimizerConfig, DimuonParams

from rlc.service.server import backend, futures


def test_models_that_cannot_be_made_are_refused_at_once(sdk: tinker.ServiceClient) -> None:
    make = sdk.create_lora_training_client
    refusals: list[tuple[Callable[[], Any], str]] = [
        (
            lambda: make("Qwen/Qwen9").result(),
            "no model 'Qwen/Qwen9'; it serves tiny, Qwen/Qwen3-8B",
        ),
        (lambda: make(BASE, rank=3).result(), "rank must be a positive power of two, not 3"),
        (lambda: make(BASE, optimizer=DimuonOptimizerConfig()).result(), "not 'dimuon'"),
        (lambda: sdk.create_sampling_client(base_model="nobody").result(), "no model 'nobody'"),
    ]
    for ask, said in refusals:
        with pytest.raises(tinker.BadRequestError, match=said):
            ask()


@pytest.mark.parametrize(
    ("work", "said"),
    [
        (lambda c: c.forward_backward(sft_data(), "gspo2"), "Unknown loss 'gspo2'"),
        (lambda c: c.forward_backward(sft_data(), "ppo"), "ppo does not read the input 'weights'"),
        (lambda c: c.forward_backward(policy_data(), "dro"), "needs the setting 'beta'"),
        (
            lambda c: c.forward_backward(policy_data(), "ppo", {"clip": 1.0}),
            "has no setting 'clip'",
        ),
        (
            lambda c: c.forward_backward(policy_data(), "ppo", {"clip_low_threshold": "low"}),
            "must be a finite number, not 'low'",
        ),
        (lambda c: c.forward(policy_data(length=9000, count=1), "ppo"), "context of 8192"),
        (lambda c: c.optim_step(types.AdamParams(beta1=2.0)), "beta1 = 2.0 is out of range"),
        (lambda c: c.optim_step(DimuonParams(learning_rate=0.1)), "AdamW only, not 'dimuon'"),
    ],
)
def test_training_that_cannot_be_done_fails_and_the_client_goes_on(
    sdk: tinker.ServiceClient, work: Callable[[tinker.TrainingClient], Any], said: str
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    with pytest.raises(tinker.RequestFailedError, match=said) as caught:
        work(client).result()
    assert caught.value.category is types.RequestErrorCategory.User
    client.forward_backward(policy_data(), "importance_sampling").result()
    metrics = client.optim_step(types.AdamParams(learning_rate=0.01)).result().metrics
    assert metrics is not None
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
    "work",
    [
        lambda c: c.load_state("weights/a"),
        lambda c: c.optim_step(types.AdamParams(learning_rate=float("nan"))),
    ],
    ids=["path", "number"],
)
def test_the_client_goes_on_after_a_request_that_was_refused_at_once(
    sdk: tinker.ServiceClient, work: Callable[[tinker.TrainingClient], Any]
) -> None:
    """The numbers of requests have no gap: the next is not held back for the refused one."""
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    passing = client.forward_backward(policy_data(), "importance_sampling")
    with pytest.raises(tinker.BadRequestError):
        work(client).result(timeout=20)
    assert passing.result(timeout=20).metrics
    metrics = client.optim_step(types.AdamParams(learning_rate=0.01)).result(timeout=20).metrics
    assert metrics is not None
    assert metrics["grad_norm"] > 0


@pytest.mark.parametrize(
    ("path", "body", "given", "status", "said"),
    [
        ("asample", b"{", {}, 400, "The body is not as it should be: Invalid JSON"),
        ("asample", {"num_samples": 1}, {}, 400, "prompt: Field required"),
        ("get_info", {"model_id": "x", "surprise": 1}, {}, 400, "surprise: Extra inputs"),
        ("optim_step", b"\xff\xfe", {}, 400, "The body is not as it should be"),
        ("optim_step", {}, {"content_type": "text/plain"}, 415, "takes application/json"),
        ("forward_backward", {}, {}, 415, "takes application/x-protobuf"),
        ("forward_backward", b"\xff" * 9, {"content_type": PROTOBUF}, 400, "in protobuf"),
        (
            "forward_backward",
            b"",
            {"content_type": PROTOBUF, "content_encoding": "zstd"},
            415,
            "no compressed bodies",
        ),
        ("forward_backward", b"", {"content_type": PROTOBUF}, 404, "There is no model"),
        ("get_info", {"model_id": "x:train:0"}, {}, 404, "There is no model x:train:0"),
        ("session_heartbeat", {"session_id": "x"}, {}, 404, "There is no session x"),
        ("retrieve_future", {"request_id": "x/1"}, {}, 410, "There is no promise x/1"),
        ("load_weights", {"path": "x", "optimizer": True}, {}, 400, "starts with tinker://"),
        ("nowhere", {}, {}, 404, "This server has no /api/v1/nowhere"),
    ],
)
def test_bad_requests(
    raw: Raw, path: str, body: Any, given: dict[str, str], status: int, said: str
) -> None:
    found, answer = raw.post(path, body, **given)
    assert (found, said in answer["detail"]) == (status, True), answer


HUGE = 2**70


def test_numbers_of_any_size_are_refused_or_mean_all(sdk: tinker.ServiceClient, raw: Raw) -> None:
    sampler = sdk.create_sampling_client(base_model=BASE).result()
    body = {
        "sampling_session_id": sampler._sampling_session_id,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": [5, 6]}]},
        "num_samples": 1,
        "sampling_params": {"max_tokens": 2},
    }
    wrong: list[dict[str, Any]] = [
        {"prompt": {"chunks": [{"type": "encoded_text", "tokens": [HUGE]}]}},
        {"num_samples": HUGE},
        {"sampling_params": {"max_tokens": HUGE}},
        {"prompt_logprobs": True, "topk_prompt_logprobs": HUGE},
    ]
    for number, change in enumerate(wrong):
        status, answer = raw.post("asample", body | {"seq_id": 900 + number} | change)
        assert status == 400, answer
    for number, name in enumerate(("top_k", "seed")):
        params = {"max_tokens": 2, name: HUGE}
        body |= {"seq_id": 950 + number, "sampling_params": params}
        status, promise = raw.post("asample", body)
        assert status == 200, promise
        connection = HTTPConnection(raw.address)
        ask = json.dumps({"request_id": promise["request_id"]}).encode()
        connection.request("POST", "/api/v1/retrieve_future", ask, {"content-type": JSON})
        answered = connection.getresponse()
        assert (answered.status, answered.getheader("content-type")) == (200, PROTOBUF)
        connection.close()


@pytest.mark.parametrize("name", ["x" * 5_000, "%00", "a%2Fb", "%2e%2e", "ä" * 200])
def test_names_that_no_folder_can_have_are_not_there(raw: Raw, name: str) -> None:
    path = f"training_runs/{quote(name, safe='%')}"
    assert raw.ask("GET", path)[0] == 404
    assert raw.ask("GET", f"{path}/checkpoints")[0] == 404
    assert raw.ask("DELETE", f"{path}/checkpoints/weights/x")[0] == 404
    assert raw.ask("DELETE", f"training_runs/run/checkpoints/weights/{'x' * 5_000}")[0] == 404


def test_the_promise_of_what_was_refused_says_why(sdk: tinker.ServiceClient, raw: Raw) -> None:
    session = sdk.holder.get_session_id()
    model = {"session_id": session, "model_seq_id": 77, "base_model": "nobody"}
    model["lora_config"] = {"rank": 2}
    status, refusal = raw.post("create_model", model)
    assert (status, "no model 'nobody'" in refusal["detail"]) == (400, True)
    promise = {"request_id": f"{session}:train:77/0"}
    status, answer = raw.post("retrieve_future", promise)
    assert (status, answer["error"]) == (200, refusal["detail"])
    status, made = raw.post("create_model", model | {"base_model": BASE})  # asked again, rightly
    assert (status, made["request_id"]) == (200, promise["request_id"])
    assert raw.post("retrieve_future", promise)[1]["model_id"] == f"{session}:train:77"


def test_a_method_that_a_path_does_not_take(raw: Raw) -> None:
    assert raw.ask("GET", "asample")[0] == 405


@pytest.mark.parametrize(("path", "most"), [("optim_step", 2), ("asample", 8)])
def test_a_body_that_is_too_large_is_refused(raw: Raw, path: str, most: int) -> None:
    for declared in ({}, {"transfer_encoding": "chunked"}):
        body = b" " * (most * 2**20 + 1)
        if declared:
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        status, answer = raw.post(path, body, **declared)
        assert (status, answer["detail"]) == (413, f"The body is larger than {most} MiB.")


def test_tensors_that_are_not_what_they_say_fail_their_request_alone(
    server: Running, sdk: tinker.ServiceClient, raw: Raw
) -> None:
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    request = types.ForwardBackwardRequest(
        types.ForwardBackwardInput(policy_data(count=1), "importance_sampling"), client.model_id, 1
    )
    message = forward_backward_request_to_proto(request)
    tensor = message.data[0].loss_fn_inputs["advantages"]
    tensor.dense = tensor.dense[:-2]
    status, promise = raw.post(
        "forward_backward", message.SerializeToString(), content_type=PROTOBUF
    )
    assert status == 200
    _, answer = raw.post("retrieve_future", {"request_id": promise["request_id"]})
    assert "are no whole number of float32" in answer["error"]
    assert answer["category"] == "user"
    client._reserve_request_ids(1)  # the number that was used behind the SDK's back
    client._turn_counter += 1
    client.forward_backward(policy_data(), "importance_sampling").result()


def test_a_repeated_request_is_carried_out_once(
    server: Running, sdk: tinker.ServiceClient, raw: Raw
) -> None:
    """The SDK repeats what it has no answer to; a gradient must not be added twice for that."""
    client = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
    once = sdk.create_lora_training_client(BASE, rank=2, seed=1).result()
    step = types.AdamParams(learning_rate=0.01)
    request = types.ForwardBackwardRequest(
        types.ForwardBackwardInput(policy_data(), "importance_sampling"), client.model_id, 1
    )
    body = forward_backward_request_to_proto(request).SerializeToString()
    client.forward_backward(policy_data(), "importance_sampling").result()
    status, again = raw.post("forward_backward", body, content_type=PROTOBUF)
    assert (status, again["request_id"]) == (200, f"{client.model_id}/1")
    client.optim_step(step).result()
    once.forward_backward(policy_data(), "importance_sampling")
    once.optim_step(step).result()
    models = server.backend.sessions.models
    np.testing.assert_array_equal(
        weights(models[client.model_id].client), weights(models[once.model_id].client)
    )


def test_a_finished_session_is_over_and_its_memory_free(server: Running, raw: Raw) -> None:
    sdk = tinker.ServiceClient(base_url=server.url, api_key=KEY)
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    sampler = client.save_weights_and_get_sampling_client().result()
    path = client.save_state("end").result().path
    session = client.holder.get_session_id()
    sdk.close("success").result()
    assert client.model_id not in server.backend.sessions.models
    assert sampler._sampling_session_id not in server.backend.sessions.samplers
    status, answer = raw.post("session_heartbeat", {"session_id": session})
    assert (status, "its program finished it (success)" in answer["detail"]) == (410, True)
    status, _ = raw.post("get_info", {"model_id": client.model_id})
    assert status == 410
    assert raw.post("weights_info", {"tinker_path": path})[0] == 200  # checkpoints stay


def test_a_program_that_died_is_given_up_after_a_while(
    server: Running, sdk: tinker.ServiceClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = sdk.create_lora_training_client(BASE, rank=2).result()
    _, made = raw.post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0"})
    dead = server.backend.sessions.all[made["session_id"]]
    dead.heard_at -= backend.SILENCE + 1
    raw.post("create_session", {"tags": [], "user_metadata": {}, "sdk_version": "0"})
    status, answer = raw.post("session_heartbeat", {"session_id": dead.id})
    assert (status, "nothing was heard" in answer["detail"]) == (410, True)
    mine.forward(policy_data(), "importance_sampling").result()


def test_samples_that_nobody_asks_for_any_more_are_given_up(
    sdk: tinker.ServiceClient, raw: Raw, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed program leaves its requests behind; others are not to wait for them."""
    session = sdk.holder.get_session_id()
    made = {"session_id": session, "sampling_session_seq_id": 70, "base_model": BASE}
    _, answer = raw.post("create_sampling_session", {**made, "type": "create_sampling_session"})
    body = {
        "sampling_session_id": answer["sampling_session_id"],
        "num_samples": 1,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": PROMPT}]},
        "sampling_params": {"max_tokens": 8000, "stop": []},
        "type": "sample",
    }
    _, left = raw.post("asample", {**body, "seq_id": 1})
    monkeypatch.setattr(futures, "_ABANDONED", 0.0)
    short = {**body, "sampling_params": {"max_tokens": 2, "stop": []}, "seq_id": 2}
    _, promise = raw.post("asample", short)
    assert raw.post("retrieve_future", {"request_id": left["request_id"]})[0] == 410
    monkeypatch.undo()
    assert (
        sdk.create_sampling_client(base_model=BASE)
        .result()
        .sample(prompt(), 1, sampling(max_tokens=2))
        .result(timeout=10)
    )
    assert promise["request_id"]


def test_old_snapshots_make_room_and_the_one_in_use_stays(
    server: Running, sdk: tinker.ServiceClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "_SNAPSHOTS", 2)
    client = sdk.create_lora_training_client(BASE, rank=2).result()
    reference, *later = [client.save_weights_and_get_sampling_client().result() for _ in range(2)]
    reference.sample(prompt(), 1, sampling()).result()
    client.save_weights_and_get_sampling_client().result()
    reference.sample(prompt(), 1, sampling()).result()
    with pytest.raises(tinker.NotFoundError, match="save_weights_for_sampler keeps one by name"):
        later[0].sample(prompt(), 1, sampling()).result()


def test_a_server_with_a_key_lets_in_who_has_it(tmp_path: Path) -> None:
    with running(tmp_path, key="tml-secret") as server:
        stranger = Raw(server.url)
        assert stranger.ask("GET", "training_runs") == (
            401,
            {"detail": "The key is not the one of this server."},
        )
        stranger.close()
        rest = tinker.RestClient(base_url=server.url, api_key="tml-secret")
        assert rest.list_training_runs().result().training_runs == []
        friend = Raw(server.url)
        for scheme in ("Bearer", "bearer"):
            given = {"authorization": f"{scheme} tml-secret", "host": "gpu.example"}
            assert friend.ask("GET", "healthz", **given)[0] == 200
        friend.close()


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("elsewhere.example:1", 403)],
)
def test_without_a_key_only_this_machine_is_answered(raw: Raw, host: str, status: int) -> None:
    """A page of another site may let its name stand for this machine."""
    assert raw.ask("GET", "healthz", host=host)[0] == status


def test_a_client_that_leaves_within_its_request_is_no_error(
    server: Running, caplog: pytest.LogCaptureFixture
) -> None:
    address = server.url.removeprefix("http://")
    for path in ("api/v1/asample", "v1/chat/completions"):
        half = HTTPConnection(address)
        half.request("POST", f"/{path}", b"{", {"content-type": JSON, "content-length": "9"})
        half.close()
    after = Raw(server.url)
    for _ in range(3):
        assert after.ask("GET", "healthz")[0] == 200
    after.close()
    assert caplog.text == ""


def test_the_models_it_serves(rest: tinker.RestClient) -> None:
    told = rest.get_server_capabilities().result().supported_models
    assert [(m.model_name, m.max_context_length, m.trainable, m.sampleable) for m in told] == [
        ("tiny", 8192, True, True),
        (BASE, 8192, True, True),
    ]
