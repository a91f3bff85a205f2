"""Chats in rows: what is read, what is trained on, and what is refused, with the message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rlc.catalog.index import find_builtin
from rlc.data.chats import read_chat, read_pair, read_prompt, read_solved
from rlc.data.errors import DataError

USER, REPLY = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"id": "a", "type": "function", "function": {"name": "add", "arguments": '{"n": [2, 2]}'}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "a"}
TOOL = {"name": "add", "description": "", "parameters": {"type": "object", "properties": {}}}


def chat(*messages: Any, train_on: str = "all", **row: Any) -> Any:
    return read_chat({"messages": list(messages), **row}, None, train_on)


@pytest.mark.parametrize(
    ("train_on", "trained"), [("all", (2, 4, 6)), ("last", (6,)), ("last_turn", (4, 6))]
)
def test_the_words_of_train_on(train_on: str, trained: tuple[int, ...]) -> None:
    made = chat(SYSTEM, USER, REPLY, USER, CALLING, RESULT, REPLY, train_on=train_on)
    assert made.trained == trained


def test_every_word_of_the_catalogue_is_known() -> None:
    builtin = find_builtin("data", "chats")
    assert builtin is not None
    (words,) = (param.all_choices() for param in builtin.params if param.name == "train_on")
    assert all(chat(USER, REPLY, train_on=word).trained == (1,) for word in words)


@pytest.mark.parametrize("mark", [{"weight": 0}, {"train": False}, {"trainable": False}])
def test_a_message_can_be_left_out(mark: dict[str, Any]) -> None:
    assert chat(USER, REPLY | mark, USER, REPLY).trained == (3,)


def test_a_mark_comes_before_train_on() -> None:
    assert chat(USER, REPLY | {"weight": 1}, USER, REPLY, train_on="last").trained == (1, 3)
    marked = chat(USER, REPLY | {"train": True}, USER, REPLY | {"train": False}, train_on="last")
    assert marked.trained == (1,)


def test_messages_have_one_form() -> None:
    parts = [{"type": "text", "text": "2"}, {"type": "text", "text": "+2?"}]
    made = chat({"role": "user", "content": parts, "name": None}, CALLING, RESULT, REPLY)
    assert made.messages[0] == USER
    assert made.messages[1] == {"role": "assistant", "content": "", "tool_calls": [CALL]}
    assert made.messages[2] == RESULT
    bare = {"name": "add", "arguments": {"n": [2, 2]}}
    assert chat(USER, {**CALLING, "tool_calls": [bare]}).messages[1]["tool_calls"] == [
        {"type": "function", "id": None, "function": CALL["function"]}
    ]


@pytest.mark.parametrize("name", ["reasoning_content", "thinking"])
def test_reasoning_is_a_part_of_its_own(name: str) -> None:
    reasoned = chat(USER, {**REPLY, name: "two and two"}).messages[1]["content"]
    assert reasoned == [
        {"type": "thinking", "thinking": "two and two"},
        {"type": "text", "text": "4"},
    ]


def test_sharegpt_is_read_as_a_chat() -> None:
    turns = [
        {"from": "human", "value": "2+2?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"n": [2, 2]}}'},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "4"},
    ]
    read = read_chat({"conversations": turns, "system": "Be brief."}, None, "last")
    assert [m["role"] for m in read.messages] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    assert read.messages[2]["tool_calls"][0]["function"] == CALL["function"]
    assert read.trained == (4,)


@pytest.mark.parametrize(
    "tools", [[{"type": "function", "function": {"name": "add"}}], [{"name": "add"}]]
)
def test_tools_have_one_form(tools: list[Any]) -> None:
    assert chat(USER, REPLY, tools=tools).tools == (TOOL,)
    assert chat(USER, REPLY, tools=json.dumps(tools)).tools == (TOOL,)


def test_a_cell_of_a_table_holds_messages_as_json() -> None:
    assert read_chat({"messages": json.dumps([USER, REPLY])}, None, "all").messages == (USER, REPLY)


REFUSED = [
    ([USER], "no message is the assistant's"),
    ([], "a chat is a list of messages, and this is an empty list"),
    (["hi"], "message 1 is text; it is an object with a `role`"),
    ([{"content": "hi"}], "message 1 has no `role`"),
    ([{"role": "human", "content": "hi"}], "message 1 has the role 'human'"),
    ([{"role": "user", "content": 7}], r"message 1 \(user\): its content is the number 7"),
    ([{"role": "user", "content": " "}], r"message 1 \(user\) is empty"),
    ([{"role": "user"}], r"message 1 \(user\) is empty"),
    ([USER, {"role": "assistant", "content": ""}], r"message 2 \(assistant\) is empty"),
    ([USER, REPLY, SYSTEM], r"message 3 \(system\): a system message comes first"),
    ([RESULT], r"message 1 \(tool\): a tool's result comes"),
    ([USER, CALLING, RESULT | {"tool_call_id": "b"}], "answers the call 'b', which was not made"),
    ([USER, REPLY | {"tool_calls": {"name": "add"}}], "`tool_calls` is an object; it is a list"),
    (
        [USER, REPLY | {"tool_calls": [{"function": "add"}]}],
        "a call is an object with a `function`",
    ),
    (
        [USER, REPLY | {"tool_calls": [{"name": "add", "arguments": "2"}]}],
        "`arguments` of `add` is 2, not an object",
    ),
    (
        [USER, REPLY | {"tool_calls": [{"name": "add", "arguments": "{n"}]}],
        "`arguments` of `add`: this is no JSON",
    ),
    ([USER | {"tool_calls": [CALL]}, REPLY], "only the assistant calls tools"),
    ([USER, REPLY | {"function_call": {"name": "add"}}], "the old form of calls"),
    ([USER, REPLY | {"weight": 0.5}], "`weight` is 0.5; it is 0 or 1"),
    ([USER, REPLY | {"train": 1}], "`train` is 1; it is true or false"),
    ([USER, REPLY | {"train": True, "weight": 1}], "says twice"),
    ([USER | {"train": True}, REPLY], "only the assistant's are trained on"),
    ([USER, REPLY | {"weight": 0}], "none of the assistant's messages is trained on"),
    (
        [{"role": "user", "content": [{"type": "input_audio"}]}, REPLY],
        "has the type 'input_audio'; known are",
    ),
]


@pytest.mark.parametrize(("messages", "what"), REFUSED)
def test_what_is_no_chat_is_refused_with_the_message(messages: list[Any], what: str) -> None:
    with pytest.raises(DataError, match=what):
        chat(*messages)


def test_the_role_that_was_meant_is_named() -> None:
    with pytest.raises(DataError) as caught:
        chat({"role": "developer", "content": "Be brief."}, USER, REPLY)
    assert caught.value.hint == "write `system`"


def test_rows_of_prompts_and_replies_are_sent_to_where_they_are_read() -> None:
    with pytest.raises(
        DataError, match="there is no field `messages` or `conversations`"
    ) as caught:
        read_chat({"prompt": "2+2?", "completion": "4"}, None, "all")
    assert caught.value.hint == 'take `rows(…, prompt = "prompt", reply = "completion")`'
    with pytest.raises(DataError, match="no field `reply`; it has `prompt`, `response`"):
        read_pair({"prompt": "2+2?", "response": "4"}, "prompt", "reply")


def test_a_prompt_is_text_or_messages() -> None:
    assert read_prompt({"q": "2+2?"}, "q").messages == (USER,)
    assert read_prompt({"q": [SYSTEM, USER]}, "q").messages == (SYSTEM, USER)
    assert read_prompt({"q": [USER], "tools": [TOOL]}, "q").tools == (TOOL,)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (7, "holds a number, and not text or a list of messages"),
        (True, "holds a truth value, and not text"),
        (None, "the field `q` is empty"),
        (["a", "b"], "holds a list, and not text or a list of messages"),
        ([1, 2.5], "holds a list, and not text"),
        ({"role": "user", "content": "a"}, "holds a record, and not text"),
        ("  ", "the field `q` is empty"),
        ([USER, REPLY], "ends with a message of the assistant; a prompt ends with one of the user"),
        ([SYSTEM], "ends with a message of the system"),
    ],
)
def test_what_is_no_prompt_is_refused(value: Any, what: str) -> None:
    with pytest.raises(DataError, match=what):
        read_prompt({"q": value}, "q")


def test_a_chat_that_was_answered_is_a_prompt_without_the_answer() -> None:
    assert read_prompt({"q": [SYSTEM, USER, REPLY]}, "q", cut=True).messages == (SYSTEM, USER)
    turns = [USER, REPLY, USER, REPLY, REPLY]
    assert read_prompt({"q": turns}, "q", cut=True).messages == (USER, REPLY, USER)
    said = f"\n\nHuman: {USER['content']}\n\nAssistant: {REPLY['content']}"
    assert read_prompt({"q": said}, "q", cut=True).messages == (USER,)
    assert read_prompt({"q": said}, "q").messages == ({"role": "user", "content": said},)
    with pytest.raises(DataError, match="ends with a message of the assistant"):
        read_prompt({"q": [REPLY]}, "q", cut=True)
    with pytest.raises(DataError, match="ends with a message") as caught:
        read_prompt({"q": turns}, "q")
    assert caught.value.hint == "`replied = cut` leaves a reply at its end out"


@pytest.mark.parametrize("row", [{"q": [SYSTEM, USER]}, {"q": "2+2?", "tools": [TOOL]}])
def test_a_solved_problem_begins_with_what_the_user_says(row: dict[str, Any]) -> None:
    assert read_solved({"q": "2+2?"}, "q").text == "2+2?"
    with pytest.raises(DataError, match="a solved problem has no system message and no tools"):
        read_solved(row, "q")
