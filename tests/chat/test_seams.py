"""Turns that go on with the tokens that were sampled, for every renderer."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from family_tokenizers import family_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from rlc.catalog.facts import renderer_names
from rlc.chat.prompts import ChatFormat, ChatHistory, prompt_of
from rlc.chat.turns import Observation

pytestmark = pytest.mark.engine

# Those of models that are known by name only, or need a package that is not on the index.
NAMES = [name for name in renderer_names() if not name.startswith(("tml", "kimi_k31"))]
# What templates move to, or show in, the last turn alone.
OF_LAST_TURN = re.compile(r"</?think>\s*|(?:\s*\{reasoning effort: \w+\}|\s+)(?=<\|im_end)")


@cache
def renderer(name: str) -> Any:
    from tinker_cookbook.renderers import get_renderer

    return get_renderer(name, family_tokenizer(), image_processor=object())


@cache
def formats(name: str) -> ChatFormat:
    return ChatFormat(renderer(name))


def encode(text: str) -> list[int]:
    return list(family_tokenizer().encode(text, add_special_tokens=False))


def decode(tokens: list[int]) -> str:
    return str(family_tokenizer().decode(tokens))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def result(text: str, number: int = 0) -> dict[str, Any]:
    return {"role": "tool", "content": text, "tool_call_id": f"call_{number}", "name": "look"}


PARTS = ["A", " B", ".", "\n", "\n\n", " ", "é", "🙂", "<", "{", "User", ":"]
MARKUP = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<|channel|>", "<|message|>"]
texts = st.lists(st.sampled_from(PARTS), max_size=6).map("".join)
replies = st.lists(st.sampled_from([*PARTS, *MARKUP, "\n\nUser:"]), max_size=6).map("".join)
asked = st.lists(texts.map(user), min_size=1, max_size=2)
results = st.lists(texts.map(result), min_size=1, max_size=3)
ruled = st.tuples(texts.map(system), texts.map(user)).map(list)
ends = st.integers(0, 3)  # which of the renderer's stops has ended a reply; beyond: it was cut off
turns = st.lists(st.tuples(replies, ends, asked | results | ruled), min_size=1, max_size=4)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(turns)
def test_a_prompt_begins_with_what_was_sampled_and_the_rest_is_as_the_template_writes_it(
    name: str, turns: list[tuple[str, int, list[dict[str, Any]]]]
) -> None:
    chats = formats(name)
    sampled, plain = ChatHistory(chats), ChatHistory(chats)
    whole = [user("What is it?")]
    prompt, written = (
        chat.observe(Observation("", messages=tuple(whole))) for chat in (sampled, plain)
    )
    for text, end, told in turns:
        if name.startswith("deepseekv3"):  # which has one system message, at the start
            told = [message for message in told if message["role"] != "system"]
        (stop,) = chats.seams.stop[end : end + 1] or [""]
        reply = encode(text) + (encode(stop) if isinstance(stop, str) else [stop])
        sampled.reply(reply)
        plain.reply(said(name))
        seen, before = prompt + reply, written + said(name)
        new = Observation("", messages=tuple(told))
        prompt, written = sampled.observe(new), plain.observe(new)
        assert prompt[: len(seen)] == seen
        added, after = prompt[len(seen) :], written[len(before) :]
        if chats.seams.by_text:
            assert decode(after).endswith(decode(added))
        else:  # the end of the turn was sampled or it was not
            assert added in (after, after[1:])
            assert added == after or stop != ""
        whole += [{"role": "assistant", "content": "A"}, *told]
    expected, _ = prompt_of(renderer(name), whole)
    assert OF_LAST_TURN.sub("", decode(written)) == OF_LAST_TURN.sub("", decode(expected))


@cache
def said(name: str) -> list[int]:
    """A plain reply without its end, as the template writes one where that is what is sampled."""
    before, _ = prompt_of(renderer(name), [user(".")])
    after, _ = prompt_of(
        renderer(name), [user("."), {"role": "assistant", "content": "A"}, user(".")]
    )
    if after[: len(before)] != before:
        return encode("A")
    at = next(
        at for at in range(len(before), len(after)) if decode(after[at : at + 1]).endswith("A")
    )
    return after[len(before) : at + 1]
