"""What is wrong with a server is said before a run folder is made, in one sentence."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from hosted_support import hosted_plan, with_model
from stub_tinker import stub_tinker

from rlc.plan.records import Plan
from rlc.service.hosted.connect import require_service
from rlc.service.interface import ServiceError

pytestmark = pytest.mark.server


@pytest.fixture
def plan() -> Plan:
    return hosted_plan()


def model(**facts: Any) -> dict[str, Any]:
    name = {"model_name": "Qwen/Qwen3-8B", "max_context_length": 32768}
    return {**name, "trainable": True, "sampleable": True, **facts}


def refusal(plan: Plan, url: str) -> ServiceError:
    with pytest.raises(ServiceError) as caught:
        require_service(plan, url)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_server_that_can_do_it_is_taken(plan: Plan) -> None:
    with stub_tinker(model()) as server:
        require_service(plan, server.url)
        require_service(plan, server.url + "/")


def test_a_refused_connection_is_said_at_once(plan: Plan) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        error = refusal(plan, url)
    assert f"cannot reach {url}" in str(error)
    assert "--base-url" in str(error.hint)


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, "does not accept the key: the key is unknown"),
        (402, "paused this account until its billing is in order"),
        (403, "not allowed"),
        (404, "does not know what was asked for"),
    ],
)
@pytest.mark.parametrize("endpoint", ["client/config", "get_server_capabilities"])
def test_a_refused_key_or_account_is_said_at_once(
    plan: Plan, status: int, said: str, endpoint: str
) -> None:
    with stub_tinker() as server:
        server.answers[endpoint] = (status, {"detail": "the key is unknown."})
        assert said in str(refusal(plan, server.url))


def test_a_server_of_another_kind_is_recognised(plan: Plan) -> None:
    with stub_tinker() as server:
        server.answers["get_server_capabilities"] = (200, {"models": ["llama"]})
        assert "does not speak the API" in str(refusal(plan, server.url))


@pytest.mark.usefixtures("hurried")
def test_a_server_that_keeps_failing_is_given_up(plan: Plan) -> None:
    with stub_tinker() as server:
        server.answers["get_server_capabilities"] = (503, {"detail": "down for repairs"})
        assert "keeps failing (HTTP 503)" in str(refusal(plan, server.url))


def test_an_unknown_model_is_named_with_the_nearest(plan: Plan) -> None:
    with stub_tinker(model(model_name="Qwen/Qwen3-8B-Base")) as server:
        error = refusal(plan, server.url)
        assert "has no model `Qwen/Qwen3-8B`" in str(error)
        assert error.hint == "did you mean `Qwen/Qwen3-8B-Base`?"


def test_a_retired_model_is_named_with_its_replacement(plan: Plan) -> None:
    with stub_tinker(model()) as server:
        error = refusal(with_model(plan, base="Qwen/Qwen3-32B"), server.url)
    assert "no longer has `Qwen/Qwen3-32B` (retired 2026-06-12)" in str(error)
    assert str(error.hint).startswith("the nearest that it has is `")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"trainable": False}, "does not train `Qwen/Qwen3-8B`"),
        ({"sampleable": False}, "does not sample `Qwen/Qwen3-8B`"),
        ({"max_context_length": 8}, "has 8 tokens of context"),
    ],
)
def test_a_model_that_is_not_for_this_use_is_refused(
    plan: Plan, facts: dict[str, Any], said: str
) -> None:
    with stub_tinker(model(**facts)) as server:
        assert said in str(refusal(plan, server.url))


def test_what_a_server_leaves_open_is_not_held_against_it(plan: Plan) -> None:
    with stub_tinker({"model_name": "Qwen/Qwen3-8B"}) as server:
        require_service(plan, server.url)


def test_the_embedded_engine_has_no_address() -> None:
    local = with_model(hosted_plan(), service="local", base="tiny")
    with pytest.raises(ServiceError, match="--base-url"):
        require_service(local, "http://127.0.0.1:1")
