"""No request makes the server fail: everything that is wrong with one is refused."""

from __future__ import annotations

import random
from typing import Any, get_type_hints
from urllib.parse import quote

import pytest
import tinker
from raw_http import PROTOBUF, Raw
from serving_support import BASE

from rlc.service.server.app import _HANDLERS

REQUESTS_PER_ROUTE = 12
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
