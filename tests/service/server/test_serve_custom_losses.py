"""Custom losses through the official SDK, computed by the server and by the SDK itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tinker
import torch
from http_testing import Running, running
from hypothesis import HealthCheck, given, settings
from loss_functions import WRITTEN, as_custom, data_for
from loss_graphs import INPUTS, graphs
from raw_http import Raw
from serving_support import BASE, KEY
from tinker import types
from torch import Tensor


def neg_ll(logprobs: Tensor, weights: Tensor) -> Any:
    loss = -(logprobs * weights).sum()
    return loss, {"custom/neg_ll:mean": loss}


RANKS: dict[str, Any] = {"logprobs": 1, "weights": 1}


@pytest.fixture(scope="module")
def client_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that leaves custom losses to the SDK."""
    with running(tmp_path_factory.mktemp("without"), custom_losses=False) as opened:
        yield opened


@pytest.fixture(params=[True, False], ids=["on the server", "in the SDK"])
def place(
    request: pytest.FixtureRequest, server: Running, client_side: Running
) -> Iterator[tuple[Running, tinker.ServiceClient, bool]]:
    opened = server if request.param else client_side
    with tinker.ServiceClient(base_url=opened.url, api_key=KEY) as sdk:
        yield opened, sdk, request.param


@pytest.mark.parametrize("name", ["importance_sampling", "ppo", "cispo", "gspo"])
def test_a_written_loss_equals_the_built_in_one(
    place: tuple[Running, tinker.ServiceClient, bool], name: Any
) -> None:
    server, sdk, on_server = place
    written, data = WRITTEN[name], data_for(name)
    clients = [sdk.create_lora_training_client(BASE, rank=4, seed=7).result() for _ in range(2)]
    handle = sdk.create_custom_loss(written.fn, written.ranks).result()
    assert (handle.loss_id is not None) == on_server
    builtin = clients[0].forward_backward(data, name, written.config).result()
    custom = clients[1].forward_backward_custom(as_custom(data), handle).result()
    assert custom.metrics["loss:sum"] == pytest.approx(builtin.metrics["loss:sum"], rel=1e-6)
    for ours, theirs in zip(custom.loss_fn_outputs, builtin.loss_fn_outputs, strict=True):
        np.testing.assert_array_equal(ours["logprobs"].to_numpy(), theirs["logprobs"].to_numpy())
    gradients = [
        server.backend.sessions.models[client.model_id].client.trainer.optimizer.gradient_P.numpy()
        for client in clients
    ]
    largest = np.abs(gradients[0]).max()
    np.testing.assert_allclose(gradients[1], gradients[0], atol=2e-6 * largest)


def test_metrics_of_a_batch_in_pieces_combine(
    place: tuple[Running, tinker.ServiceClient, bool],
) -> None:
    """The SDK cuts at 1,024 datums; a mean is over all of them. It adds in float32."""
    _, sdk, _ = place
    client = sdk.create_lora_training_client(BASE, rank=2, seed=7).result()
    tokens = types.ModelInput.from_ints([40, 41])
    data = []
    for weight in [1.0] * 1024 + [5.0] * 6:
        arrays: dict[str, Any] = {
            "target_tokens": np.array([41, 42]),
            "weights": np.full(2, weight, dtype=np.float32),
        }
        data.append(types.Datum(tokens, arrays))
    handle = sdk.create_custom_loss(neg_ll, RANKS).result()
    metrics = client.forward_backward_custom(data, handle).result().metrics
    assert metrics["custom/neg_ll:mean"] == pytest.approx(metrics["loss:sum"] / 1030, rel=1e-4)


def test_it_can_be_evaluated_without_a_gradient(server: Running, sdk: tinker.ServiceClient) -> None:
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    handle = sdk.create_custom_loss(neg_ll, RANKS).result()
    assert handle.loss_id is not None
    told = client.forward(data_for("cross_entropy"), "custom", {"loss_id": handle.loss_id})
    expected = client.forward(data_for("cross_entropy"), "cross_entropy").result().metrics
    metrics = told.result().metrics
    assert metrics["loss:sum"] == pytest.approx(expected["loss:sum"], rel=1e-6)
    assert server.backend.sessions.models[client.model_id].client.trainer.has_gradient is False


def test_the_sdk_shows_why_a_loss_is_refused(sdk: tinker.ServiceClient) -> None:
    def random(logprobs: Tensor) -> Any:
        return (logprobs + torch.rand_like(logprobs)).sum(), {}

    with pytest.raises(
        tinker.RequestFailedError, match=r"'random', node 'rand_like' .'torch.rand_like'., is not"
    ):
        sdk.create_custom_loss(random, {"logprobs": 1}).result()


def test_the_sdk_shows_why_a_loss_fails(sdk: tinker.ServiceClient) -> None:
    def unfitting(logprobs: Tensor) -> Any:
        return logprobs[:, 0].sum(), {}

    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    handle = sdk.create_custom_loss(unfitting, {"logprobs": 1}).result()
    with pytest.raises(tinker.RequestFailedError, match="too many indices") as raised:
        client.forward_backward_custom(data_for("cross_entropy"), handle).result()
    assert raised.value.category is types.RequestErrorCategory.User
    client.forward_backward(data_for("cross_entropy"), "cross_entropy").result()  # goes on


def graph(*nodes: dict[str, Any], result: str = "total") -> dict[str, Any]:
    """A graph over logprobs whose ``total`` is their sum, with other nodes before that."""
    first = {"op": "placeholder", "name": "logprobs", "target": "logprobs"}
    total = {"op": "call_method", "name": "total", "target": "sum", "args": [{"ref": "logprobs"}]}
    last = {
        "op": "output",
        "name": "output",
        "target": "output",
        "args": [{"tuple": [{"ref": result}, {"dict": {}}]}],
    }
    return {"nodes": [first, *nodes, total, last]}


def created(raw: Raw, session: str, seq: int, **given: Any) -> dict[str, Any]:
    """The answer to the promise of a loss."""
    body = {
        "session_id": session,
        "custom_loss_seq_id": seq,
        "name": "loss",
        "inputs": [{"name": "logprobs", "rank": 1}],
        "graph": graph(),
        **given,
    }
    status, promised = raw.post("create_custom_loss", body)
    assert status == 200, promised
    status, answer = raw.post("retrieve_future", {"request_id": promised["request_id"]})
    assert status == 200
    return answer


def session_of(raw: Raw) -> str:
    body = {"tags": [], "sdk_version": "0.38", "user_metadata": {}}
    return str(raw.post("create_session", body)[1]["session_id"])


def test_a_repeated_request_is_the_same_loss(raw: Raw, server: Running) -> None:
    session = session_of(raw)
    first = created(raw, session, 0)
    again = created(raw, session, 0, name="another")
    assert first == again
    second = created(raw, session, 7)  # whatever the order in which they arrive
    assert list(server.backend.sessions.all[session].losses) == [
        first["loss_id"],
        second["loss_id"],
    ]
    server.backend.futures.forget(first["loss_id"])  # an hour later
    assert created(raw, session, 0) == first


def test_a_loss_belongs_to_its_session(raw: Raw, sdk: tinker.ServiceClient) -> None:
    other = created(raw, session_of(raw), 0)["loss_id"]
    client = sdk.create_lora_training_client(BASE, rank=4, seed=7).result()
    data = data_for("cross_entropy", count=1)
    with pytest.raises(tinker.RequestFailedError, match="This session has no custom loss"):
        client.forward_backward(data, "custom", {"loss_id": other}).result()
    with pytest.raises(tinker.RequestFailedError, match="takes one setting, the loss_id"):
        client.forward_backward(data, "custom").result()


def test_a_session_that_is_over_keeps_no_losses(raw: Raw, server: Running) -> None:
    session = session_of(raw)
    created(raw, session, 0)
    raw.post(f"sessions/{session}/finish", {"reason": {"type": "success"}})
    assert not server.backend.sessions.all[session].losses
    body = {"session_id": session, "custom_loss_seq_id": 1, "name": "x", "inputs": []}
    assert raw.post("create_custom_loss", body | {"graph": graph()})[0] == 410


def test_a_session_has_so_many_losses_and_no_more(raw: Raw) -> None:
    session = session_of(raw)
    answers = [created(raw, session, seq) for seq in range(257)]
    assert all("loss_id" in answer for answer in answers[:256])
    assert "at most 256" in answers[256]["error"]


def test_a_server_without_custom_losses_says_so(client_side: Running) -> None:
    raw = Raw(client_side.url)
    assert raw.post("client/config", {})[1]["custom_loss_server_side"] is False
    assert "computes no custom losses" in created(raw, session_of(raw), 0)["error"]
    raw.close()


def nested(depth: int) -> Any:
    inner: Any = 1
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    "node",
    [
        {"op": "call_function", "target": "os.system", "args": ["true"]},
        {"op": "call_method", "target": "__reduce__", "args": [{"ref": "logprobs"}]},
        {"op": "call_function", "target": "getattr", "args": [{"ref": "logprobs"}, "__class__"]},
        {"op": "call_method", "target": "exp", "args": [{"ref": "total"}]},
        {"op": "call_method", "target": "add", "args": [{"ref": "logprobs"}, 2**70]},
        {"op": "call_method", "target": "mul", "args": [{"ref": "logprobs"}, 10**400]},
        {"op": "call_method", "target": "add", "args": [{"ref": "logprobs"}, nested(150)]},
        {"op": "call_method", "target": "sum", "args": [{"ref": "logprobs"}, nested(90)]},
        {"op": "call_method", "target": "exp", "args": [{"ref": ["logprobs"]}]},
        {"op": "call_method", "target": "exp", "args": [{"nobody": 1}]},
        {"op": "call_method", "target": "exp", "args": [{"dict": {"x": 1}}]},
        {"op": "call_method", "target": "to", "args": [{"ref": "logprobs"}, {"device": "cuda"}]},
        {"op": "call_module", "target": "logprobs", "args": []},
        {"op": "get_attr", "target": "weight", "args": []},
        {"op": "call_function", "target": "torch.exp", "args": [1.0]},
        {"op": "call_function", "target": "", "args": [{"ref": "logprobs"}]},
    ],
    ids=lambda node: str(node["target"]),
)
def test_hostile_graphs_are_refused_by_name(raw: Raw, node: dict[str, Any]) -> None:
    session = session_of(raw)
    answer = created(raw, session, 0, graph=graph({"name": "evil", **node}))
    assert answer["category"] == "user"
    assert "node 'evil'" in answer["error"]
    assert "loss_id" in created(raw, session, 1)


@pytest.mark.parametrize(
    "given",
    [
        {"graph": {"nodes": []}},
        {"graph": {"nodes": [*graph()["nodes"][:-1]]}},
        {"graph": graph(*({**graph()["nodes"][0], "name": f"p{i}"} for i in range(9)))},
        {"graph": graph(*({**graph()["nodes"][1], "name": f"s{i}"} for i in range(5000)))},
        {"graph": graph({**graph()["nodes"][1], "name": "total"})},
        {"graph": graph(result="logprobs")},
        {"graph": graph(result="nobody")},
        {"inputs": []},
        {"inputs": [{"name": "weights", "rank": 1}]},
        {"inputs": [{"name": "logprobs", "rank": 0}]},
        {"inputs": [{"name": "logprobs", "rank": 1}] * 17},
    ],
)
def test_what_is_no_loss_is_refused(raw: Raw, given: dict[str, Any]) -> None:
    answer = created(raw, session_of(raw), 0, **given)
    assert answer["category"] == "user"
    assert answer["error"].startswith("The custom loss 'loss'")


@pytest.mark.parametrize("text", ['{"graph": ' + "[" * 20000, '{"custom_loss_seq_id": 1e999}'])
def test_bodies_that_cannot_be_read_are_refused(raw: Raw, text: str) -> None:
    status, _ = raw.post("create_custom_loss", text.encode())
    assert status == 400


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graphs())
def test_no_graph_is_an_error_of_the_server(raw: Raw, graph: dict[str, Any]) -> None:
    answer = created(raw, session_of(raw), 0, graph=graph, inputs=INPUTS)
    assert "loss_id" in answer or answer["category"] == "user"
