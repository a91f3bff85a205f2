"""No request makes the server fail: everything that is wrong with one is refused."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from typing import Any, get_type_hints
from urllib.parse import quote

import pytest
import tinker
from http_testing import Running
from raw_http import JSON, PROTOBUF, Raw
from serving_support import BASE, prompt, sampling

from rlc.service.http import Server
from rlc.service.server.app import _HANDLERS

REQUESTS_PER_ROUTE = 12
MIB = 2**20
PARTS = ["x", "%00", "%ff", "%2e%2e", "a%2Fb", "x" * 300, "weights", "external_weights", "%C3%A4"]
QUERIES = ["limit", "offset", "day", "event_type", "starting_on", "ending_before", "project_id"]
MOMENTS = ["0001-01-01T00:00:00+14:00", "9999-12-31T23:00:00-14:00", "2026-01-01T00:00:00Z"]
ROUTES = [(method, path) for method, handlers in _HANDLERS.items() for path in handlers]


@pytest.mark.parametrize(("method", "path"), ROUTES, ids=" ".join)
def test_nothing_that_is_asked_fails_the_server(
    sdk: tinker.ServiceClient, raw: Raw, method: str, path: str
) -> None:
    rng = random.Random(f"{method} {path}")
    session = sdk.holder.get_session_id()
    there = {"id": f"{session}:train:0", "kind": "weights", "name": "a"}
    known = {"session_id": session, "base_model": BASE, "path": "tinker://run/weights/a"}
    odd = [None, "", -1, 2**70, 1.5, True, [], {}, "x" * 5_000, "\0", [1], {"a": 1}, *MOMENTS]
    body = get_type_hints(_HANDLERS[method][path]).get("request")
    fields = [name for name in getattr(body, "model_fields", {}) if name != "type"]
    for _ in range(REQUESTS_PER_ROUTE):
        address = path
        for name, right in there.items():
            address = address.replace(f"{{{name}}}", rng.choice([right, *PARTS]))
        asked = {name: str(rng.choice(odd)) for name in rng.sample(QUERIES, rng.randint(0, 3))}
        query = "&".join(f"{name}={quote(value)}" for name, value in asked.items())
        content: Any = {
            name: known.get(name, rng.choice(odd)) for name in fields if rng.random() < 0.8
        }
        kind = {"content_type": PROTOBUF} if path == "forward_backward" else {}
        given = {} if method == "GET" else {"body": content}
        status, answer = raw.ask(method, f"{address}?{query}", **given, **kind)
        assert status < 500, (address, query, content, answer)


def large_bodies(session: str, sampler: str) -> Iterator[tuple[str, bytes, str]]:
    """Paths, bodies, and what is said of them."""
    asked = b'{"sampling_session_id":"%b","seq_id":%d,"num_samples":1,"sampling_params":{},'
    asked += b'"prompt":{"chunks":[%b]}}'
    for number, mib, chunk, said in (
        (901, 24, b"%b", "larger than 8 MiB"),
        (902, 7, b"%b", "more than the model's context"),
        (903, 7, b'{"type":"encoded_text","tokens":[5]}', "more than 32,768 objects"),
    ):
        tokens = b'{"type":"encoded_text","tokens":[%b]}' % b",".join([b"250"] * (mib * MIB // 4))
        chunks = tokens if chunk == b"%b" else b",".join([chunk] * (mib * MIB // 38))
        yield "api/v1/asample", asked % (sampler.encode(), number, chunks), said
    node = {"op": "call_function", "name": "x", "target": "torch.exp", "args": [{"ref": "a"}]}
    loss = {"session_id": session, "custom_loss_seq_id": 1, "name": "x", "inputs": []}
    graph = {"format": 1, "nodes": [node] * (11 * MIB // 80)}
    content = json.dumps({**loss, "graph": graph}).encode()
    yield "api/v1/create_custom_loss", content, "larger than 2 MiB"
    text, least = "Hello there. " * (20 * MIB // 13), {"model": BASE, "max_tokens": 4}
    one, many = [{"role": "user", "content": text}], [{"role": "user", "content": "x"}] * 500_000
    long = "characters exceed the context"
    yield "v1/chat/completions", json.dumps({**least, "messages": one}).encode(), long
    yield "v1/messages", json.dumps({**least, "messages": one}).encode(), long
    yield "v1/chat/completions", json.dumps({**least, "messages": many}).encode(), "at most 32768"
    yield "v1/completions", json.dumps({**least, "prompt": text}).encode(), long


def test_clients_that_leave_are_not_worth_a_line(caplog: pytest.LogCaptureFixture) -> None:
    Server(lambda *_: None)  # type: ignore[arg-type]

    async def write_on() -> None:
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=mine
        )
        its.close()
        for _ in range(9):
            transport.write(b"x" * 2**20)
            await asyncio.sleep(0)

    mine, its = socket.socketpair()
    asyncio.run(write_on())
    assert caplog.text == ""


@pytest.mark.slow
def test_others_are_answered_while_a_client_sends_something_large(
    server: Running, sdk: tinker.ServiceClient, raw: Raw
) -> None:
    sampler = sdk.create_sampling_client(base_model=BASE).result()
    few = sampling(max_tokens=4)
    sampler.sample(prompt(), 1, few).result()
    session, sampler_id = sdk.holder.get_session_id(), sampler._sampling_session_id
    slowest = 0.0

    def send(path: str, body: bytes) -> tuple[int, str]:
        connection = HTTPConnection(raw.address)
        connection.request("POST", f"/{path}", body, {"content-type": JSON})
        answer = connection.getresponse()
        found = answer.status, answer.read().decode()
        connection.close()
        return found

    with ThreadPoolExecutor(1) as pool:
        for path, body, said in large_bodies(session, sampler_id):
            sending = pool.submit(send, path, body)
            while not sending.done():
                began = time.monotonic()
                assert raw.ask("GET", "healthz")[0] == 200
                sampler.sample(prompt(), 1, few).result()
                slowest = max(slowest, time.monotonic() - began)
            status, answer = sending.result()
            assert status in (400, 413)
            assert said in answer
    assert slowest < 5.0  # 0.6 on a quiet machine; a chat took 65
