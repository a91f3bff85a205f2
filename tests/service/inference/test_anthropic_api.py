"""The unmodified `anthropic` client against a served engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from http_testing import Running, running
from serving_support import BASE, KEY
from tool_caller import CALL, TOOL

if TYPE_CHECKING:  # it takes over a second: not in each collection
    import anthropic

ASKED: Any = [{"role": "user", "content": "Spell the word apple backwards."}]
ADD: Any = {
    "name": "add",
    "description": TOOL["function"]["description"],
    "input_schema": TOOL["function"]["parameters"],
}


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[anthropic.Anthropic]:
    import anthropic

    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0) as opened:
        yield opened


_EXTRA = ("temperature", "top_k", "top_p", "seed", "min_p", "return_token_ids")


def filled(given: dict[str, Any]) -> dict[str, Any]:
    """A request; what the client has no words for goes into its body as it is."""
    extra = {"seed": 3} | {name: given.pop(name) for name in _EXTRA if name in given}
    asked = {"model": BASE, "messages": ASKED, "max_tokens": 24, "extra_body": extra}
    return asked | given


def whole(client: anthropic.Anthropic, **given: Any) -> Any:
    return client.messages.create(**filled(given))


def streamed(client: anthropic.Anthropic, **given: Any) -> Any:
    """A stream, put together by the client itself."""
    with client.messages.stream(**filled(given)) as stream:
        return stream.get_final_message()


def said(message: Any) -> dict[str, Any]:
    content = [block.model_dump(include={"type", "text", "input"}) for block in message.content]
    return {"content": content, "stop": (message.stop_reason, message.stop_sequence)}


def test_a_stream_says_what_the_whole_says(client: anthropic.Anthropic) -> None:
    given: dict[str, Any] = {"system": "Spell.", "temperature": 0.9, "top_k": 50, "top_p": 0.9}
    ours, theirs = whole(client, **given), streamed(client, **given)
    assert said(ours) == said(theirs)
    assert ours.stop_reason in ("end_turn", "max_tokens")
    for message in (ours, theirs):
        usage = message.usage
        assert usage.output_tokens == ours.usage.output_tokens
        counted = client.messages.count_tokens(model=BASE, messages=ASKED, system="Spell.")
        assert usage.input_tokens + usage.cache_read_input_tokens == counted.input_tokens
    cut = whole(client, max_tokens=2)
    assert (cut.stop_reason, cut.usage.output_tokens) == ("max_tokens", 2)


def test_events_come_as_tokens_are_sampled(client: anthropic.Anthropic) -> None:
    events = list(whole(client, stream=True, temperature=0))
    kinds = [event.type for event in events]
    deltas = kinds.count("content_block_delta")
    assert deltas > 5
    assert kinds == [
        "message_start",
        "content_block_start",
        *["content_block_delta"] * deltas,
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    text = "".join(e.delta.text for e in events if e.type == "content_block_delta")
    assert text == whole(client, temperature=0).content[0].text


def test_a_stop_sequence_ends_a_reply_and_is_named(client: anthropic.Anthropic) -> None:
    full = whole(client, temperature=0).content[0].text
    stop = full[3:5]
    for reply in (whole, streamed):
        message = reply(client, temperature=0, stop_sequences=["@@@", stop])
        assert message.content[0].text == full[: full.index(stop)]
        assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)


@pytest.mark.slow
def test_tools_are_called_by_a_trained_model(client: anthropic.Anthropic, caller: str) -> None:
    given: dict[str, Any] = {"model": caller, "tools": [ADD], "temperature": 0, "max_tokens": 200}
    for reply in (whole, streamed):
        message = reply(client, **given)
        (block,) = message.content
        assert message.stop_reason == "tool_use"
        assert (block.type, block.name, block.input) == ("tool_use", CALL[0], json.loads(CALL[1]))
    result = {"type": "tool_result", "tool_use_id": block.id, "content": "3"}
    turns = [
        *ASKED,
        {"role": "assistant", "content": [block.model_dump(exclude_none=True)]},
        {"role": "user", "content": [result, {"type": "text", "text": "Go on."}]},
    ]
    assert whole(client, **{**given, "messages": turns}).content


def test_the_tokens_of_a_reply_are_at_hand(client: anthropic.Anthropic) -> None:
    message = whole(client, return_token_ids=True)
    assert len(message.token_ids) == len(message.logprobs) == message.usage.output_tokens
    kept: Any = client.get(f"/v1/requests/{message.id}", cast_to=object)
    assert kept["prompts"] == [message.prompt_token_ids]
    assert kept["choices"] == [{"token_ids": message.token_ids, "logprobs": message.logprobs}]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("choice", [{"type": "any"}, {"type": "tool", "name": "add"}])
def test_a_call_that_is_asked_for_comes(
    client: anthropic.Anthropic, choice: Any, streams: bool
) -> None:
    choice |= {"disable_parallel_tool_use": True}
    given: Any = {"tools": [ADD], "tool_choice": choice, "max_tokens": 60}
    message = streamed(client, **given) if streams else whole(client, **given)
    (block,) = message.content
    assert (block.type, block.name, message.stop_reason) == ("tool_use", "add", "tool_use")
    assert isinstance(block.input, dict)


def test_models_and_the_path_that_hosted_tinker_has(
    client: anthropic.Anthropic, server: Running
) -> None:
    import anthropic

    assert BASE in [model.id for model in client.models.list()]
    assert client.models.retrieve(BASE).id == BASE
    there = anthropic.Anthropic(base_url=f"{server.url}/anthropic/api", auth_token=KEY)
    assert said(whole(there)) == said(whole(client))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": []}, "at least 1"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 9000}, "prompt is too long"),
        ({"temperature": 1.5}, "temperature"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "does not support thinking"),
        ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "sub"}}, "names none of"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "of type bash_20250124"),
        ({"stop_sequences": [""]}, "must not be empty"),
        ({"min_p": 0.5}, "no parameter min_p"),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": "The"}]},
            "cannot continue a reply",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "nothing is fetched from elsewhere",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(
    client: anthropic.Anthropic, given: dict[str, Any], said: str
) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match=said) as raised:
        whole(client, **given)
    body: Any = raised.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")


def test_an_unknown_model_and_a_wrong_key(tmp_path: Path, client: anthropic.Anthropic) -> None:
    import anthropic

    with pytest.raises(anthropic.NotFoundError, match="does not exist here"):
        whole(client, model="claude")
    with running(tmp_path, key="tml-right") as server:
        assert whole(anthropic.Anthropic(base_url=server.url, api_key="tml-right")).content
        wrong = anthropic.Anthropic(base_url=server.url, api_key="tml-wrong", max_retries=0)
        with pytest.raises(anthropic.AuthenticationError, match="authentication_error"):
            whole(wrong)
