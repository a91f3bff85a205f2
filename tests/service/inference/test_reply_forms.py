"""Replies of a form: what may be sampled, what is sampled again, and what of it is prompt."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from attrs import define, field, frozen
from chat_support import encode, tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from rlc.chat.prompts import fitting_renderer
from rlc.service.chats.forms import BegunReply, ReplyForm, opened
from rlc.service.chats.grammar import JsonGrammar, State, after, shortest
from rlc.service.chats.masks import FormMask, masks_of, token_texts
from rlc.service.chats.model import ChatModel, ReplyRequest
from rlc.service.chats.prompts import ChatError, FormError, Tool
from rlc.service.interface import SamplingRequest

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "child": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
    },
    "required": ["name", "child"],
}
SCHEMAS: list[dict[str, Any]] = [
    {"type": "object"},
    {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3},
    {"enum": ["é", 3, None, {"a": [1]}]},
    {"type": ["string", "null"], "minLength": 1, "maxLength": 4},
    {"type": "integer", "minimum": 3, "maximum": 12},
    {
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": True},
        "required": ["b"],
        "additionalProperties": False,
    },
    {"$ref": "#/$defs/node", "$defs": {"node": NODE}},
    {"allOf": [{"$ref": "#/$defs/node"}], "$defs": {"node": NODE}},
    {"type": "object", "additionalProperties": {"type": "boolean"}},
]
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "unit": {"enum": ["C", "F"]}},
    "required": ["city", "unit"],
}
TOOLS = (Tool("look", "", CITY, None), Tool("answer", "", {"type": "object"}, None))


@cache
def renderer(name: str = "qwen3_instruct") -> Any:
    return fitting_renderer(tokenizer(), name)


def state_of(schema: Any) -> State:
    return frozenset({(JsonGrammar(schema).start(), None)})


def reads(schema: Any, text: str) -> bool:
    state = state_of(schema)
    for one in text:
        state = after(state, one)
    return not shortest(state)


@pytest.mark.parametrize(
    ("schema", "text", "fits"),
    [
        (True, ' {"a": [1, -2.5e+3, "\\u00e9", null]}'.strip(), True),
        (True, "[1,]", False),
        (True, "01", False),
        (SCHEMAS[1], "[1, 2]", True),
        (SCHEMAS[1], "[1]", False),
        (SCHEMAS[1], "[1, 2, 3, 4]", False),
        (SCHEMAS[2], '"é"', True),
        (SCHEMAS[2], '"\\u00e9"', True),
        (SCHEMAS[3], '""', False),
        (SCHEMAS[4], "12", True),
        (SCHEMAS[4], "13", False),
        (SCHEMAS[5], '{"b": true}', True),
        (SCHEMAS[5], '{\n  "a": 1,\n  "b": false\n}', True),
        (SCHEMAS[5], '{"a": 1}', False),
        (SCHEMAS[5], '{"b": true, "d": 1}', False),
        (SCHEMAS[6], '{"name": "x", "child": {"name": "y", "child": null}}', True),
        (SCHEMAS[6], '{"name": "x", "child": {"name": "y"}}', False),
        (SCHEMAS[7], '{"name": "x", "child": null}', True),
        (SCHEMAS[8], '{"a": true, "b": false}', True),
        (SCHEMAS[8], '{"a": 1}', False),
        ({"allOf": [True, SCHEMAS[8]]}, '{"a": true}', True),
    ],
)
def test_a_grammar_has_the_texts_of_its_schema(schema: Any, text: str, fits: bool) -> None:
    assert reads(schema, text) == fits


@cache
def of_schema(number: int) -> BegunReply:
    form = ReplyForm(schema=SCHEMAS[number])
    return opened(form, renderer(), tokenizer(), ())


@cache
def of_call(name: str) -> BegunReply:
    return opened(ReplyForm(("look", "answer")), renderer(name), tokenizer(), TOOLS)


def filled(begun: BegunReply, seed: int, most: int) -> list[int]:
    """Return tokens that a mask allows, as any model could sample them."""
    masks = masks_of(begun, tokenizer())
    assert masks is not None
    mask, tokens, chance = masks(), list[int](), Random(seed)
    for left in range(most, 0, -1):
        allowed = np.flatnonzero(mask.allowed(tokens, left))
        tokens.append(int(chance.choice(allowed)))
        if tokens[-1] == begun.tail[-1]:
            return tokens
    raise AssertionError(f"no end: {tokenizer().decode(tokens)}")


@settings(max_examples=12)
@given(st.integers(0, 99), st.sampled_from(range(len(SCHEMAS))), st.integers(40, 60))
def test_whatever_is_sampled_under_a_mask_is_json_of_the_schema_within_the_limit(
    seed: int, number: int, most: int
) -> None:
    *body, end = filled(of_schema(number), seed, most)
    assert [end] == renderer().get_stop_sequences()
    assert Draft202012Validator(SCHEMAS[number]).is_valid(json.loads(tokenizer().decode(body)))


@settings(max_examples=8)
@given(st.integers(0, 99), st.sampled_from(["qwen3", "qwen3_instruct", "qwen3_disable_thinking"]))
def test_a_call_under_a_mask_is_read_as_one(seed: int, name: str) -> None:
    begun = of_call(name)
    assert tokenizer().decode(begun.opening).endswith('<tool_call>\n{"name": "')
    tokens = filled(begun, seed, 80)
    message, _ = renderer(name).parse_response([*begun.opening, *tokens])
    (call,) = message["tool_calls"]
    schema = {tool.name: tool.parameters for tool in TOOLS}[call.function.name]
    assert Draft202012Validator(schema).is_valid(json.loads(call.function.arguments))


def test_a_named_call_begins_with_its_name() -> None:
    begun = opened(ReplyForm(("look",)), renderer(), tokenizer(), TOOLS)
    text = tokenizer().decode(begun.opening)
    assert text.startswith('<tool_call>\n{"name": "look", "arguments": {')
    assert not opened(ReplyForm(("look",)), renderer("role_colon"), tokenizer(), TOOLS).opening


def test_beside_tools_a_reply_is_json_or_begins_a_call() -> None:
    begun = opened(ReplyForm(schema=SCHEMAS[4]), renderer(), tokenizer(), TOOLS)
    masks = masks_of(begun, tokenizer())
    assert masks is not None
    first = masks().allowed([], 9)
    assert {*tokenizer().decode(np.flatnonzero(first))} == {*"13456789<"}
    (call,) = encode("<")
    assert not masks().allowed(encode("3"), 9)[call]
    assert masks().allowed([call], 9).all()


def doubled(depth: int, leaf: Any, key: str = "anyOf") -> dict[str, Any]:
    """A schema with 2 ** depth ways to the same leaf."""
    parts = {str(i): {key: [{"$ref": f"#/$defs/{i + 1}"}] * 2} for i in range(depth)}
    return {"$ref": "#/$defs/0", "$defs": {**parts, str(depth): leaf}}


@pytest.mark.parametrize(
    "schema", [{"anyOf": [{"$ref": "#"}, {"type": "null"}]}, doubled(60, {"type": "null"})]
)
def test_many_ways_to_one_part_of_a_schema_are_one(schema: dict[str, Any]) -> None:
    mask = FormMask(token_texts(tokenizer()), (258,), state_of(schema), {})
    assert tokenizer().decode(np.flatnonzero(mask.allowed([], 9))) == "n"
    assert tokenizer().decode(np.flatnonzero(mask.allowed(encode("nul"), 6))) == "l"


def test_where_ways_part_in_great_numbers_nothing_is_masked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rlc.service.chats.masks._MOST_WAYS", 10_000)
    branches = [{"properties": {"x": {"$ref": "#"}, key: {"type": "null"}}} for key in "yz"]
    mask = FormMask(token_texts(tokenizer()), (258,), state_of({"anyOf": branches}), {})
    assert not mask.allowed([], 99_999).all()
    assert mask.allowed(encode('{"x":' * 8), 99_999).all()


DRAFT = '{"$schema": "http://json-schema.org/draft-07/schema#", "anyOf"'
OF_ANOTHER_DRAFT = json.loads(json.dumps(doubled(60, {"type": "null"})).replace('{"anyOf"', DRAFT))


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (doubled(60, {"type": "null"}, "oneOf"), "1"),
        (doubled(60, {"type": "null"}, "allOf"), "null"),
        (OF_ANOTHER_DRAFT, "1"),
        ({"pattern": "^(a|aa)+$"}, json.dumps("a" * 60 + "!")),
    ],
)
def test_a_check_that_takes_too_long_is_given_up(
    monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any], text: str
) -> None:
    monkeypatch.setattr("rlc.service.chats.prompts._MOST_SECONDS", 0.1)
    with pytest.raises(ChatError, match="cannot be checked in time") as raised:
        answered(Scripted([text]), ReplyForm(schema=schema), ())
    assert raised.value.part == "response_format"


def test_the_shortest_text_of_many_fields_or_of_schemas_that_refer_to_each_other() -> None:
    names = [f"field_{i}" for i in range(60)]
    assert shortest(state_of({"properties": {name: {} for name in names}})) == 2
    fields = {name: {"$ref": f"#/$defs/{name}"} for name in [*names, "end"]}
    each = {"type": "object", "properties": fields}
    node = {"type": "object", "properties": {"f": fields["end"]}, "required": ["f"]}
    end = {"anyOf": [node, {"type": "null"}]}
    within = {"$defs": {**dict.fromkeys(names, each), "node": node, "end": end}}
    assert shortest(state_of({**within, **fields[names[0]]})) == 2
    assert shortest(state_of({**within, **node})) == len('{"f":null}')


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
    ],
)
def test_a_schema_that_is_left_to_itself_masks_nothing(schema: Any) -> None:
    mask = FormMask(token_texts(tokenizer()), (258,), state_of(schema), {})
    assert mask.allowed([], 9).all()


def test_what_is_no_schema_that_can_be_checked_is_refused() -> None:
    with pytest.raises(ChatError, match="the schema is no JSON schema"):
        ReplyForm(schema={"type": "mouse"})


@define
class Scripted:
    """A service that cannot mask: it gives these replies, one after the other."""

    replies: list[str]
    seen: list[tuple[list[int], int, int | None]] = field(factory=list)

    async def sample(self, prompt: Any, num_samples: int, sampling_params: Any) -> Any:
        from tinker import types

        self.seen.append((prompt.to_ints(), num_samples, sampling_params.seed))
        texts, self.replies = self.replies[:num_samples], self.replies[num_samples:]
        tokens = [[*encode(text), 258] for text in texts]
        return types.SampleResponse(
            sequences=[
                types.SampledSequence(
                    "stop",
                    str(i),
                    np.array(each, dtype=np.int32),
                    np.full(len(each), -0.5, dtype=np.float32),
                )
                for i, each in enumerate(tokens)
            ]
        )


@frozen
class Given:
    tokens: list[list[int]]
    prompt: tuple[int, ...]
    opening: tuple[int, ...]


def answered(client: Scripted, form: ReplyForm, tools: Sequence[Tool] = TOOLS, **how: Any) -> Given:
    model = ChatModel("m", "m", client, tokenizer(), renderer(), 4096)  # type: ignore[arg-type]
    asked: list[Mapping[str, Any]] = [{"role": "user", "content": "Look."}]
    request = ReplyRequest(SamplingRequest(max_tokens=99, **how), asked, tools, form=form)

    async def work() -> Given:
        generation = model.start(request)
        await generation.begin()
        tokens: list[list[int]] = [[] for _ in range(generation.n)]
        async for choice, token in generation.tokens():
            tokens[choice].append(token.token)
        return Given(tokens, generation.prompts[0], generation.opening)

    return asyncio.run(work())


def test_only_what_does_not_fit_is_sampled_again() -> None:
    client = Scripted(["12", '{"a": 1}', "[", '{"b": 2}'])
    form = ReplyForm(schema={"type": "object"})
    got = answered(client, form, (), n=2, seed=7)
    assert [tokenizer().decode(tokens[:-1]) for tokens in got.tokens] == ['{"b": 2}', '{"a": 1}']
    assert [count for _, count, _ in client.seen] == [2, 1, 1]
    assert len({seed for _, _, seed in client.seen}) == 3
    assert not got.opening


def test_the_opening_of_a_call_is_prompt_and_the_rest_is_what_was_sampled() -> None:
    rest = 'Oslo"}}\n</tool_call>'
    begun = encode('<tool_call>\n{"name": "look", "arguments": {')
    client = Scripted(["nonsense", '"city": "' + rest])
    got = answered(client, ReplyForm(("look",)))
    assert list(got.opening) == begun
    assert list(got.prompt[-len(begun) :]) == begun
    assert {tuple(prompt) for prompt, _, _ in client.seen} == {got.prompt}
    assert got.tokens == [[*encode('"city": "' + rest), 258]]


def test_a_reply_that_never_fits_is_an_error_with_the_last_replies() -> None:
    client = Scripted(["no"] * 9)
    with pytest.raises(
        FormError, match="a call of look: it calls no tool, and was sampled 5 times"
    ):
        answered(client, ReplyForm(("look",)))
    assert len(client.seen) == 5
    greedy = Scripted(["no"] * 9)
    with pytest.raises(FormError, match="sampled 1 time") as raised:
        answered(greedy, ReplyForm(schema={"type": "object"}), (), temperature=0.0)
    assert len(greedy.seen) == 1  # the same again would be no other
    assert raised.value.code == "json_validate_failed"
    assert list(raised.value.response.sequences[0].tokens) == [*encode("no"), 258]


def test_of_several_calls_the_first_is_kept_if_one_is_allowed() -> None:
    call = '<tool_call>\n{"name": "answer", "arguments": {}}\n</tool_call>'
    client = Scripted([f"Both. {call}\n{call}"])
    got = answered(client, ReplyForm(one_call=True))
    assert tokenizer().decode(got.tokens[0]) == f"Both. {call}"
