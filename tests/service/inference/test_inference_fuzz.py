"""Any body gets an answer or a refusal in the API's own form, never a failure of the server."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any

import pytest
from http_testing import Running
from hypothesis import given, settings
from hypothesis import strategies as st

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.sampled_from(["user", "assistant", "tool", "text", "function", "auto", "none", "tiny"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)
BLOCK = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", "image"])},
    optional={
        "text": st.text(max_size=8),
        "id": st.just("a"),
        "name": st.just("f"),
        "input": ANY,
        "tool_use_id": st.just("a"),
        "content": st.text(max_size=4),
        "thinking": st.text(max_size=4),
    },
)
CALLED = st.fixed_dictionaries({"name": st.text(max_size=4), "arguments": st.text(max_size=6)})
CALL = st.fixed_dictionaries(
    {"id": st.just("a"), "type": st.just("function"), "function": CALLED},
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"])},
    optional={
        "content": st.text(max_size=8) | st.lists(BLOCK, max_size=3) | st.none(),
        "tool_calls": st.lists(CALL, max_size=2),
        "tool_call_id": st.just("a"),
        "reasoning_content": st.text(max_size=4),
    },
)
FIELDS: dict[str, Any] = {
    "messages": st.lists(MESSAGE, max_size=3),
    "max_tokens": st.integers(-1, 4),
    "n": st.integers(0, 3),
    "stop": st.text(max_size=3) | st.lists(st.text(max_size=3), max_size=3),
    "stop_sequences": st.lists(st.text(max_size=3), max_size=3),
    "system": st.text(max_size=4) | st.lists(BLOCK, max_size=2),
    "seed": st.integers(),
    "temperature": st.floats(0, 2),
    "logprobs": st.booleans() | st.integers(-1, 3),
    "top_logprobs": st.integers(-1, 3),
    "prompt": st.text(max_size=4) | st.lists(st.integers(-1, 400), max_size=4),
    "tools": st.lists(ANY, max_size=2),
    "stream": st.booleans(),
    "echo": st.booleans(),
    "return_token_ids": st.booleans(),
}
BODY = st.fixed_dictionaries(
    {"model": st.just("tiny")},
    optional={name: field | ANY if name == "tools" else field for name, field in FIELDS.items()},
)


def ask(server: Running, path: str, body: bytes) -> tuple[int, bytes]:
    connection = HTTPConnection(server.url.removeprefix("http://"))
    connection.request("POST", path, body, {"content-type": "application/json"})
    response = connection.getresponse()
    content = response.status, response.read()
    connection.close()
    return content


def assert_answered(status: int, content: bytes) -> None:
    assert status in (200, 400, 404), content
    if status != 200:
        error = json.loads(content)["error"]
        assert error["message"]
    elif content.startswith((b"data: ", b"event: ")):
        assert b"server_error" not in content
        assert b"api_error" not in content
    else:
        json.loads(content)


@pytest.mark.parametrize(
    "path", ["chat/completions", "completions", "messages", "messages/count_tokens"]
)
@given(body=BODY)
@settings(deadline=None, max_examples=60)
def test_bodies_with_the_fields_of_the_apis(server: Running, path: str, body: Any) -> None:
    if path != "completions":
        body.pop("prompt", None)
        body.setdefault("messages", [{"role": "user", "content": "a"}])
    body.setdefault("max_tokens", 2)
    assert_answered(*ask(server, f"/v1/{path}", json.dumps(body).encode()))


@given(body=ANY.map(lambda body: json.dumps(body).encode()) | st.binary(max_size=8))
@settings(deadline=None, max_examples=40)
def test_anything_at_all(server: Running, body: bytes) -> None:
    status, content = ask(server, "/v1/chat/completions", body)
    assert status == 400
    assert_answered(status, content)
    assert ask(server, "/v1/completions", b"[" * 100_000)[0] == 400
