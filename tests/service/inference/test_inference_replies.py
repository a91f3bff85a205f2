"""From tokens to text and messages: what is passed on early is what the whole says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import pytest
from chat_support import encode, tokenizer
from hypothesis import given
from hypothesis import strategies as st

from rlc.chat.prompts import fitting_renderer
from rlc.service.chats.prompts import ChatError, Tool, fits, require_checkable
from rlc.service.chats.replies import (
    ChatReader,
    FullReply,
    Reader,
    Step,
    StopCutter,
    TextDecoder,
    TextReader,
    read_steps,
)
from rlc.service.interface import SampledToken

NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ADD = Tool("add", "", NUMBERS, NUMBERS)


@cache
def renderer(name: str = "qwen3") -> Any:
    return fitting_renderer(tokenizer(), name)


def end() -> int:
    (token,) = renderer().get_stop_sequences()
    return int(token)


def read(reader: Reader, tokens: list[int], reason: Any = "stop") -> tuple[list[Step], FullReply]:
    async def sampled() -> AsyncIterator[tuple[int, SampledToken]]:
        for i, token in enumerate(tokens):
            last = reason if i == len(tokens) - 1 else None
            yield 0, SampledToken(0, token, -1.0, (), last)

    async def collect() -> list[Step]:
        return [step async for step in read_steps(sampled(), [reader])]

    steps, whole = asyncio.run(collect()), FullReply()
    for step in steps:
        whole.add(step)
    return steps, whole


def chat(text: str, tools: bool = True, reason: Any = "stop", **given: Any) -> FullReply:
    plain = TextReader(tokenizer(), frozenset({end()}), given.pop("stops", ()))
    tokens = encode(text) + ([end()] if reason == "stop" and not plain.stops else [])
    return read(ChatReader(renderer(), plain, [ADD] if tools else [], **given), tokens, reason)[1]


@given(st.lists(st.integers(0, 332), max_size=80))
def test_text_is_decoded_as_all_tokens_would_be(tokens: list[int]) -> None:
    decoder = TextDecoder(tokenizer())
    pieces = [decoder.feed(token) for token in tokens]
    assert "".join(pieces) + decoder.finish() == tokenizer().decode(tokens)


def test_a_character_of_several_tokens_comes_with_its_last() -> None:
    decoder = TextDecoder(tokenizer())
    tokens = encode("é€")
    assert [decoder.feed(token) for token in tokens] == ["", "é", "", "", "€"]


@given(st.lists(st.text("ab", min_size=1, max_size=3)), st.lists(st.text("ab", min_size=1)))
def test_text_ends_before_the_first_stop(stops: list[str], pieces: list[str]) -> None:
    cutter = StopCutter(stops)
    passed = "".join([cutter.feed(piece) for piece in pieces]) + cutter.finish()
    whole = "".join(pieces)
    assert whole.startswith(passed)
    assert not any(stop in passed for stop in stops)
    assert (cutter.matched is None) == (not any(stop in whole for stop in stops))
    assert cutter.matched is not None or passed == whole


def test_what_may_begin_a_stop_is_held_back() -> None:
    cutter = StopCutter(["END"])
    assert [cutter.feed(piece) for piece in ("a", "bE", "N", "e", "EN", "D", "x")] == [
        "a",
        "b",
        "",
        "ENe",
        "",
        "",
        "",
    ]
    assert cutter.matched == "END"


def test_reasoning_comes_apart_from_the_answer() -> None:
    whole = chat("<think>\nIt is 4.\n</think>\n\nFour.")
    assert (whole.reasoning, whole.text) == ("It is 4.", "Four.")
    begun = chat("It is 4.\n</think>\n\nFour.", is_reasoning=True)
    assert (begun.reasoning, begun.text) == ("It is 4.", "Four.")
    cut_off = chat("<think>\nIt is", reason="length")
    assert (cut_off.reasoning, cut_off.text) == ("It is", "")
    assert cut_off.end is not None
    assert cut_off.end.reason == "length"


def test_calls_of_tools_are_read_by_the_renderer() -> None:
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
    whole = chat(f"<think>hm</think>I add.\n{call}\n{call}")
    assert (whole.reasoning, whole.text) == ("hm", "I add.")
    assert whole.end is not None
    assert whole.end.reason == "tool_calls"
    assert [(c.name, c.arguments) for c in whole.end.calls] == [("add", '{"a": 1}')] * 2
    assert chat(call).text == ""


def test_a_call_that_is_none_is_text() -> None:
    for text in ("<tool_call>{broken</tool_call>", "a <tool_call>never closed", "a <| b", "<tool"):
        whole = chat(text)
        assert whole.text == text
        assert whole.end is not None
        assert (whole.end.calls, whole.end.reason) == ((), "stop")


def test_a_call_of_a_strict_tool_that_does_not_fit_is_text() -> None:
    for arguments in ('{"a": "one"}', "{}", "3"):
        text = f'a <tool_call>{{"name": "add", "arguments": {arguments}}}</tool_call>'
        whole = chat(text)
        assert whole.text == text
        assert whole.end is not None
        assert whole.end.calls == ()


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, ["1", "-3"], ["1.5", "true", '"1"', "null", "{"]),
        ({"type": ["string", "null"]}, ['"a"', "null"], ["1"]),
        ({"type": "number", "minimum": 0, "exclusiveMaximum": 2}, ["0", "1.5"], ["-1", "2"]),
        ({"enum": ["a", 1]}, ['"a"', "1"], ['"b"']),
        ({"const": 2}, ["2"], ["3"]),
        ({"oneOf": [{"multipleOf": 2}, {"multipleOf": 3}]}, ["2", "9"], ["5", "6"]),
        ({"format": "date"}, ['"2026-02-28"'], ['"2026-02-30"']),
        ({"$ref": "#/$defs/none"}, [], ["1"]),
        ({"anyOf": [{"type": "null"}, {"type": "array"}]}, ["null", "[1]"], ["1"]),
        ({"type": "array", "items": {"type": "boolean"}, "maxItems": 1}, ["[true]"], ["[1]"]),
        ({"type": "string", "pattern": "^a+$", "minLength": 2}, ['"aa"'], ['"a"', '"ab"']),
        (
            {"properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}},
            ["{}", '{"x": null}', '{"y": 1}'],
            ['{"x": 1}'],
        ),
        ({**NUMBERS, "additionalProperties": False}, ['{"a": 1}'], ["{}", '{"a": 1, "b": 2}']),
    ],
)
def test_arguments_fit_a_schema(schema: dict[str, Any], good: list[str], bad: list[str]) -> None:
    require_checkable(schema)
    assert [value for value in good if not fits(value, schema)] == []
    assert [value for value in bad if fits(value, schema)] == []


def test_a_schema_that_cannot_be_checked_is_refused() -> None:
    wrong = {"properties": {"x": {"anyOf": [{"type": "text"}]}}}
    with pytest.raises(ChatError, match="'text' is not valid"):
        Tool("add", "", wrong, wrong)
    assert Tool("add", "", wrong, None)
    elsewhere = {"properties": {"x": {"$ref": "https://example.com/x.json"}}}
    with pytest.raises(ChatError, match="is not fetched"):
        Tool("add", "", elsewhere, elsewhere)


def test_calls_are_text_where_no_tools_were_offered() -> None:
    text = 'a <tool_call>{"name": "add", "arguments": {}}</tool_call>'
    whole = chat(text, tools=False)
    assert whole.text == text
    assert whole.end is not None
    assert whole.end.calls == ()


def test_the_stop_of_a_request_is_no_part_of_the_reply() -> None:
    whole = chat("<think>x</think>one, two, three", stops=("two", "zzz"))
    assert (whole.reasoning, whole.text) == ("x", "one, ")
    assert whole.end is not None
    assert whole.end.stop == "two"
    held = chat("a <tool_call> b STOP", stops=("STOP",))
    assert held.text == "a <tool_call> b "


_PIECES = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<", "|", " ", "\n", "a", "é"]
_PIECES += ['{"name": "add", "arguments": {}}', "<|im_start|>"]


@given(
    st.lists(
        st.sampled_from(_PIECES),
        max_size=12,
    ),
    st.booleans(),
    st.sampled_from(["stop", "length"]),
)
def test_any_reply_is_read_to_its_end(pieces: list[str], tools: bool, reason: str) -> None:
    """Nothing raises, and nothing of an answer without markup is lost or doubled."""
    text = "".join(pieces)
    whole = chat(text + "x", tools, reason)
    assert whole.end is not None
    if "<" not in text:
        assert whole.text == text + "x"


@pytest.mark.parametrize("name", ["qwen3_instruct", "qwen3_disable_thinking", "role_colon"])
def test_other_renderers(name: str) -> None:
    own = renderer(name)
    texts = [stop for stop in own.get_stop_sequences() if isinstance(stop, str)]
    plain = TextReader(tokenizer(), frozenset({end()}), texts)
    after = encode(texts[0]) if texts else [end()]
    _, whole = read(ChatReader(own, plain, []), [*encode("Fine < thanks."), *after])
    assert whole.text == "Fine < thanks."
