"""Conversations that an environment gives as a whole: what extends the sampled tokens, and what is
written anew."""

from __future__ import annotations

from typing import Any

import pytest
from chat_support import tokenizer

from rlc.chat.prompts import chat_history
from rlc.chat.transcripts import (
    TranscriptHistory,
    TranscriptTree,
    reply_message,
    whole_conversation,
)
from rlc.chat.turns import EnvError

pytestmark = pytest.mark.engine

ASKED = {"role": "user", "content": "What is 1 + 2?"}
ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def new_history(renderer: str = "qwen3_instruct") -> TranscriptHistory:
    return TranscriptHistory(chat_history(tokenizer(), renderer, whole=True))


def encode(text: str, ended: bool = True) -> list[int]:
    return list(tokenizer().encode(text + "<|im_end|>" * ended, add_special_tokens=False))


def reply_to(history: TranscriptHistory, text: str, ended: bool = True) -> dict[str, Any]:
    """The reply as the environment hears it."""
    return reply_message(history.reply(encode(text, ended)), 0)


def test_a_conversation_that_goes_on_extends_what_was_sampled() -> None:
    history = new_history()
    first = list(history.observe(whole_conversation([ASKED], [])))
    said = reply_to(history, "  4  ")
    then = history.observe(
        whole_conversation([ASKED, said, {"role": "user", "content": "No."}], [])
    )
    assert then[: len(first)] == first
    assert then[len(first) : len(first) + len(encode("  4  "))] == encode("  4  ")


def test_a_reply_that_was_cut_off_is_closed_and_kept() -> None:
    history = new_history()
    first = list(history.observe(whole_conversation([ASKED], [])))
    action = history.reply(encode("four and", ended=False))
    assert action.cut_off
    then = history.observe(
        whole_conversation([ASKED, reply_message(action, 0), {"role": "user", "content": "?"}], [])
    )
    assert then[: len(first) + 8][len(first) :][:2] == encode("four and", ended=False)[:2]


@pytest.mark.parametrize("edit", ["shorter", "reply", "system", "tools", "nothing new"])
def test_an_edited_conversation_is_written_anew(edit: str) -> None:
    """As a history that never saw the first turn writes it: nothing of the sampled tokens that the
    environment took away is left."""
    history = new_history()
    history.observe(whole_conversation([ASKED], []))
    said, no = reply_to(history, "  4  "), {"role": "user", "content": "No."}
    now: list[Any] = [ASKED, said, no]
    if edit == "shorter":
        now = [ASKED, no]
    elif edit == "reply":
        now[1] = {**said, "content": "[left out]"}
    elif edit == "system":
        now = [{"role": "system", "content": "Think."}, *now]
    elif edit == "nothing new":
        now = now[:2]
    seen = whole_conversation(now, [ADD] if edit == "tools" else [])
    assert history.observe(seen) == new_history().observe(seen)


def test_calls_are_told_apart_and_results_carry_the_name_of_the_tool() -> None:
    history = new_history()
    first = list(history.observe(whole_conversation([ASKED], [ADD])))
    action = history.reply(encode(CALL))
    said = reply_message(action, 7)
    assert [call["id"] for call in said["tool_calls"]] == ["call_7_0"]
    result = {"role": "tool", "tool_call_id": "call_7_0", "content": "3"}
    seen = whole_conversation([ASKED, said, result], [ADD])
    assert seen.text == "3"
    assert seen.messages[-1]["name"] == "add"
    assert history.observe(seen)[: len(first) + len(encode(CALL))] == [*first, *encode(CALL)]


def test_a_call_that_cannot_be_read_is_text() -> None:
    history = new_history()
    history.observe(whole_conversation([ASKED], [ADD]))
    said = reply_to(history, "<tool_call>\n{add}\n</tool_call>")
    assert "{add}" in said["content"]
    assert "tool_calls" not in said


@pytest.mark.parametrize("content", [None, "", " "])
def test_what_does_not_matter_to_a_model_does_not_break_the_prefix(content: str | None) -> None:
    history = new_history()
    first = list(history.observe(whole_conversation([ASKED], [ADD])))
    (call,) = reply_to(history, CALL)["tool_calls"]
    call = {**call, "id": "b", "function": {"name": "add", "arguments": '{ "a":1 }'}}
    said = {"role": "assistant", "content": content, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "b", "content": "3"}
    seen = whole_conversation([ASKED, {**said, "reasoning_content": "hm"}, result], [ADD])
    assert history.observe(seen)[: len(first) + len(encode(CALL))] == [*first, *encode(CALL)]
    without = whole_conversation([ASKED, {"role": "assistant", "content": ""}, result], [ADD])
    assert history.observe(without)[: len(first) + len(encode(CALL))] != [*first, *encode(CALL)]


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "input_audio", "input_audio": {}}, "a part of the type input_audio"),
        ({"type": "image_url", "image_url": {"url": "http://x/y.png"}}, "only data URIs"),
    ],
)
def test_what_no_model_is_shown_is_refused(part: dict[str, Any], why: str) -> None:
    with pytest.raises(EnvError, match=why):
        whole_conversation([{"role": "user", "content": [part]}], [])


def test_of_answers_with_one_text_that_with_the_thinking_that_is_sent_back_goes_on() -> None:
    tree = TranscriptTree(chat_history(tokenizer(), "qwen3", whole=True))
    asked = whole_conversation([ASKED], []).messages
    for thought in ("FIRST", "SECOND"):
        tree.answer(tree.write(asked), encode(f"<think>\n{thought}\n</think>\n\n4"))
    for thought, shown in (("FIRST", "FIRST"), ("SECOND", "SECOND"), ("", "SECOND")):
        said = {"role": "assistant", "content": "4", "reasoning_content": thought}
        whole = whole_conversation([ASKED, said, {"role": "user", "content": "?"}], []).messages
        assert f"<think>\n{shown}\n</think>" in tokenizer().decode(tree.write(whole).tokens)


def test_the_results_of_two_tools_are_two_conversations() -> None:
    tree = TranscriptTree(chat_history(tokenizer(), "qwen3_instruct", whole=True))
    call = {"role": "assistant", "content": "I look."}
    used = [ASKED, call, {"role": "tool", "content": "3", "name": "add", "tool_call_id": "1"}]
    tree.answer(tree.write(whole_conversation(used, []).messages), encode("3"))
    more = [{"role": "assistant", "content": "3"}, {"role": "user", "content": "Sure?"}]
    other = {**used[2], "name": "guess"}
    assert tree.write(whole_conversation([*used, *more], []).messages).kind == "continued"
    assert (
        tree.write(whole_conversation([*used[:2], other, *more], []).messages).kind != "continued"
    )
