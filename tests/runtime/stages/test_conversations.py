"""Which tokens of a chat are trained on, and after what: as tinker-cookbook's renderers say."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from chat_support import tokenizer

from rlc.catalog.facts import renderer_names
from rlc.chat.prompts import opening, rendered, seeing_renderer
from rlc.data.chats import read_chat
from rlc.data.errors import DataError
from rlc.runtime.rollouts.tokens import TokenSequence
from rlc.runtime.stages.file_examples import SupervisedRenderer

pytestmark = pytest.mark.plain

ASKED, MORE = {"role": "user", "content": "Hi"}, {"role": "user", "content": "2+2?"}
HELLO, FOUR = {"role": "assistant", "content": "Hello."}, {"role": "assistant", "content": "4"}
CALL = {"id": "a", "function": {"name": "look", "arguments": {"n": 4}}}
TOOL = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
CHATS = {
    "plain": [{"role": "system", "content": "Be brief."}, ASKED, HELLO, MORE, FOUR],
    "reasoned": [
        ASKED,
        HELLO | {"thinking": "a greeting"},
        MORE,
        FOUR | {"thinking": "a sum"},
    ],
    "calling": [
        ASKED,
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "content": "rain", "tool_call_id": "a", "name": "look"},
        HELLO,
        MORE,
        FOUR,
    ],
}
# Renderers whose tokens the included tokenizer has.
RENDERERS = (
    "qwen3_instruct",
    "llama3",
    "role_colon",
    "qwen3",
    "qwen3_disable_thinking",
    "qwen3_5",
    "qwen3_5_disable_thinking",
    "qwen3_5_preserve_thinking",
    "qwen3_8_low_reasoning",
    "kimi_k2",
    "nemotron3",
    "nemotron3_preserve_thinking",
    "gpt_oss_low_reasoning",
)
# What the renderers cannot show of these chats.
UNSHOWN = {
    ("llama3", "reasoned"),
    ("llama3", "calling"),
    ("role_colon", "reasoned"),
    ("role_colon", "calling"),
    ("qwen3_disable_thinking", "reasoned"),
    ("qwen3_5_disable_thinking", "reasoned"),
}
# Where the cookbook trains on something that is not what is sampled: the end of a turn that the
# next one hides, earlier reasoning that its prompt leaves out, and what its prompt begins with.
OTHERWISE = {
    ("role_colon", "plain"),
    ("qwen3_instruct", "reasoned"),
    ("nemotron3_preserve_thinking", "reasoned"),
}


def conversations(renderer: str) -> SupervisedRenderer:
    return SupervisedRenderer(seeing_renderer(tokenizer(), renderer), renderer)


def trained(sequences: Sequence[tuple[Sequence[int], Sequence[bool]]]) -> Counter[tuple[int, ...]]:
    """Every token that is trained on, with all tokens before it."""
    return Counter(
        tuple(tokens[: at + 1])
        for tokens, mask in sequences
        for at, chosen in enumerate(mask)
        if chosen
    )


def mine(sequences: Sequence[TokenSequence]) -> Counter[tuple[int, ...]]:
    return trained([(s.tokens, [turn >= 0 for turn in s.turns]) for s in sequences])


def cookbook(renderer: Any, messages: list[Any], train_on: str) -> Counter[tuple[int, ...]]:
    from tinker_cookbook.renderers import TrainOnWhat

    made = renderer.build_supervised_examples(messages, train_on_what=TrainOnWhat(train_on))
    return trained([(shown.to_ints(), weights.bool().tolist()) for shown, weights in made])


COOKBOOK_WORDS = {
    "all": "all_assistant_messages",
    "last": "last_assistant_message",
    "last_turn": "last_assistant_turn",
}


@pytest.mark.parametrize("train_on", COOKBOOK_WORDS)
@pytest.mark.parametrize("kind", CHATS)
@pytest.mark.parametrize("name", RENDERERS)
def test_what_is_trained_on_is_what_the_cookbook_trains_on(
    name: str, kind: str, train_on: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    chat, made = read_chat({"messages": CHATS[kind]}, None, train_on), conversations(name)
    if (name, kind) in UNSHOWN:
        with pytest.raises(DataError):
            made.sequences(chat)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the cookbook's, about what it cannot split
        whole = [rendered(message) for message in chat.messages]
        expected = cookbook(made.renderer, whole, COOKBOOK_WORDS[train_on])
    if (name, kind) in OTHERWISE and train_on == "all":
        expected = Counter()
        for at in chat.trained:
            expected += cookbook(made.renderer, whole[: at + 1], COOKBOOK_WORDS["last"])
        if name == "role_colon":
            expected = Counter(set(expected))
    assert mine(made.sequences(chat)) == expected


def test_the_renderers_compared_are_in_the_catalogue() -> None:
    assert set(RENDERERS) <= set(renderer_names())


@pytest.mark.parametrize("name", RENDERERS)
def test_no_token_is_trained_on_that_a_prompt_supplies(name: str) -> None:
    made = conversations(name)
    chat = read_chat({"messages": CHATS["plain"]}, None, "all")
    for sequence in made.sequences(chat):
        for turn, at in enumerate(chat.trained):
            prompt = made.renderer.build_generation_prompt(list(chat.messages[:at])).to_ints()
            if turn in sequence.turns and sequence.tokens[: len(prompt)] == prompt:
                assert turn not in sequence.turns[: len(prompt)]
                assert sequence.turns[len(prompt)] == turn
    assert (made.differing > 0) == name.startswith("nemotron3")  # its template contradicts itself


def test_turns_share_a_sequence_unless_the_renderer_rewrites_them() -> None:
    plain = read_chat({"messages": CHATS["plain"]}, None, "all")
    reasoned = read_chat({"messages": CHATS["reasoned"]}, None, "all")
    assert len(conversations("qwen3_instruct").sequences(plain)) == 1
    assert len(conversations("qwen3").sequences(reasoned)) == 2


def test_marked_messages_are_trained_on_alone() -> None:
    messages = [ASKED, HELLO | {"weight": 0}, MORE, FOUR | {"weight": 1}]
    (sequence,) = conversations("qwen3_instruct").sequences(
        read_chat({"messages": messages}, None, "all")
    )
    said = [token for token, turn in zip(sequence.tokens, sequence.turns, strict=True) if turn >= 0]
    assert tokenizer().decode(said) == "4<|im_end|>"


def test_tools_are_shown_in_the_renderers_words() -> None:
    row = {"messages": CHATS["calling"], "tools": [TOOL]}
    (sequence,) = conversations("qwen3_instruct").sequences(read_chat(row, None, "all"))
    text = tokenizer().decode(sequence.tokens)
    assert '{"type": "function", "function": {"name": "look"' in text
    assert '<tool_call>\n{"name": "look", "arguments": {"n": 4}}\n</tool_call>' in text
    renderer = conversations("qwen3_instruct").renderer
    prompt = opening(renderer, [ASKED], [TOOL])
    begin = renderer.build_generation_prompt(prompt).to_ints()
    assert sequence.tokens[: len(begin)] == begin


@pytest.mark.parametrize(
    ("name", "row", "what"),
    [
        ("llama3", {"messages": CHATS["calling"]}, "`llama3` does not write calls of tools"),
        ("llama3", {"messages": CHATS["plain"], "tools": [TOOL]}, "no way to show tools"),
        ("llama3", {"messages": CHATS["reasoned"]}, "message 2: Expected text content"),
        (
            "qwen3_instruct",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "image": "a.png"}]},
                    FOUR,
                ]
            },
            "shows no images; take a model that sees",
        ),
    ],
)
def test_what_a_renderer_would_leave_out_is_refused(name: str, row: Any, what: str) -> None:
    with pytest.raises(DataError, match=what):
        conversations(name).sequences(read_chat(row, None, "all"))
