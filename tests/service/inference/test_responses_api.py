"""The unmodified `openai` client, by way of responses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from http_testing import Running
from serving_support import BASE, KEY
from tool_caller import TOOL

ADD: Any = {"type": "function", **TOOL["function"]}
ASKED = "Spell the word apple backwards."


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as opened:
        yield opened


def answer(client: openai.OpenAI, **given: Any) -> Any:
    filled: Any = {"model": BASE, "input": ASKED, "max_output_tokens": 24}
    return client.responses.create(**{**filled, "extra_body": {"seed": 3}, **given})


def streamed(client: openai.OpenAI, **given: Any) -> tuple[list[Any], Any]:
    """The events of a stream, and the response that the client puts together."""
    filled: Any = {"model": BASE, "input": ASKED, "max_output_tokens": 24}
    filled |= {"extra_body": {"seed": 3}, **given}
    with client.responses.stream(**filled) as stream:
        return list(stream), stream.get_final_response()


def test_a_response_says_what_a_chat_says(client: openai.OpenAI) -> None:
    got = answer(client, instructions="Be short.")
    asked: Any = [{"role": "system", "content": "Be short."}, {"role": "user", "content": ASKED}]
    chat = client.chat.completions.create(model=BASE, messages=asked, max_tokens=24, seed=3)
    assert got.output_text == chat.choices[0].message.content
    assert chat.usage is not None
    assert got.usage.input_tokens == chat.usage.prompt_tokens
    assert got.usage.output_tokens == chat.usage.completion_tokens
    events, last = streamed(client, instructions="Be short.")
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == last.output_text == got.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_a_call_and_its_result_go_back_as_items(client: openai.OpenAI) -> None:
    given: Any = {"tools": [ADD], "tool_choice": "required", "max_output_tokens": 60}
    events, last = streamed(client, **given)
    whole = answer(client, **given)
    for response in (last, whole):
        (call,) = response.output
        assert (call.type, call.name, response.status) == ("function_call", "add", "completed")
        assert json.loads(call.arguments).keys() == {"a"}
    kinds = [event.type.removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    items = [{"role": "user", "content": ASKED}, call.model_dump(), result]
    more = answer(client, input=items, tools=[ADD])
    called: Any = {"id": call.call_id, "type": "function"}
    called["function"] = {"name": call.name, "arguments": call.arguments}
    asked: Any = [
        {"role": "user", "content": ASKED},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": call.call_id, "content": "3"},
    ]
    chat = client.chat.completions.create(
        model=BASE, messages=asked, tools=[TOOL], max_tokens=24, seed=3
    )
    assert chat.usage is not None
    assert more.usage.input_tokens == chat.usage.prompt_tokens
    assert more.output_text == chat.choices[0].message.content


def test_text_of_a_format_and_its_limit(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    wanted = {"format": {"type": "json_schema", "name": "x", "schema": schema, "strict": True}}
    got = answer(client, text=wanted, max_output_tokens=40)
    assert isinstance(json.loads(got.output_text)["a"], int)
    cut = answer(client, max_output_tokens=2)
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert [item.status for item in cut.output] == ["incomplete"]
    given: Any = {"model": BASE, "input": ASKED, "max_output_tokens": 2}
    events = list[Any](client.responses.create(**given, extra_body={"seed": 3}, stream=True))
    assert events[-1].type == "response.incomplete"
    (done,) = (event.item for event in events if event.type == "response.output_item.done")
    assert done.status == events[-1].response.output[0].status == "incomplete"


def test_a_schema_of_too_many_ways_is_refused_and_others_are_answered(
    client: openai.OpenAI, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlc.service.chats.prompts._MOST_SECONDS", 0.1)
    parts: Any = {str(i): {"oneOf": [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(60)}
    schema = {"$ref": "#/$defs/0", "$defs": {**parts, "60": {"enum": [1]}}, "not": {"enum": [1]}}
    wanted: Any = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    with ThreadPoolExecutor(1) as other:
        refused = other.submit(answer, client, text=wanted)
        with httpx.Client(base_url=server.url) as raw:
            while not refused.done():
                raw.get("/api/v1/healthz", timeout=1).raise_for_status()
    with pytest.raises(openai.BadRequestError, match="cannot be checked in time") as raised:
        refused.result()
    assert raised.value.param == "response_format"


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "keeps no responses"),
        ({"conversation": "conv_1"}, "conversation", "keeps no responses"),
        ({"store": True}, "store", "does not support store"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type", "function"),
        ({"tools": [ADD], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice", "none"),
        ({"tools": [ADD], "tool_choice": {"type": "function"}}, "tool_choice", "none"),
        ({"input": []}, "input", "at least 1"),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0]", "of type"),
        ({"input": [{"type": "function_call", "call_id": "1"}]}, "input", "no message"),
        ({"input": [{"role": "assistant", "content": "e"}]}, "messages", "cannot continue"),
        ({"reasoning": {"effort": "low"}}, "reasoning", "does not support"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: openai.OpenAI, given: dict[str, Any], param: str, said: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=said) as raised:
        answer(client, **given)
    assert (raised.value.param or "").startswith(param)
