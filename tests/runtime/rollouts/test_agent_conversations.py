"""Whatever an agent asks, each sampled token is trained once, after the prompt that it was sampled
from."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial
from typing import Any

import pytest
from attrs import define, field
from chat_support import tokenizer
from hypothesis import given
from hypothesis import strategies as st

from rlc.chat.prompts import ChatFormat, ChatHistory, conversation, fitting_renderer
from rlc.chat.transcripts import Message, TranscriptTree, reply_message
from rlc.runtime.records import Turn
from rlc.runtime.rollouts.tokens import NOT_SAMPLED, EpisodeTokens, merged_sequences

pytestmark = pytest.mark.plain

TOOLS = ({"name": "add", "description": "Adds.", "parameters": {"type": "object"}},)
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@cache
def renderer(name: str = "qwen3_instruct") -> Any:
    return fitting_renderer(tokenizer(), name)


@define
class Agent:
    """An agent's side of an episode: what it sends, and what it gets back."""

    of: TranscriptTree
    tokens: EpisodeTokens = field(factory=EpisodeTokens)
    turns: list[Turn] = field(factory=list)
    prompts: list[list[int]] = field(factory=list)
    chats: list[tuple[Message, ...]] = field(factory=list)  # with the answer
    number: int = 0

    def ask(
        self,
        *messages: Message,
        reply: str,
        ends: bool = True,
        tools: Any = (),
        opening: str = "",
    ) -> list[int]:
        """Send a conversation; return the tokens of its prompt."""
        written = self.of.write(conversation(messages, tools).messages)
        given: list[int] = tokenizer().encode(opening, add_special_tokens=False)
        asked = [*written.tokens, *given]
        sampled: list[int] = tokenizer().encode(reply, add_special_tokens=False)
        sampled += renderer().get_stop_sequences()[:1] if ends else []
        chat = written.chat.copy()
        message = reply_message(chat.reply([*given, *sampled]), self.number)
        self.number += 1
        action = self.of.answer(written, [*given, *sampled], message)
        self.chats.append((*messages, message))
        self.prompts.append(asked)
        prompt = self.tokens.extend(asked, sampled)
        logprobs = [-1.0] * len(sampled)
        self.turns.append(Turn(prompt, sampled, logprobs, "", action.text, None, "stop"))
        return self.prompts[-1]


def agent(name: str = "qwen3_instruct") -> Agent:
    return Agent(TranscriptTree(partial(ChatHistory, ChatFormat(renderer(name)), whole=True)))


def user(text: str) -> Message:
    return {"role": "user", "content": text}


# What a request does: begin a conversation, go on from the answer of an earlier one, or change what
# was answered there; with which reply.
steps = st.lists(
    st.tuples(
        st.sampled_from(["begin", "go on", "go on trimmed", "rewrite"]),
        st.integers(0, 50),
        st.sampled_from(["yes", " no ", "", "12\n", CALL, "a <think> b"]),
        st.booleans(),
    ),
    min_size=1,
    max_size=9,
)


@given(steps)
def test_each_sampled_token_is_trained_once_after_its_own_prompt(
    played: list[tuple[str, int, str, bool]],
) -> None:
    one = agent()
    for number, (kind, of, reply, ends) in enumerate(played):
        if kind == "begin" or not one.chats:
            one.ask(user(f"question {of % 3}"), reply=reply, ends=ends, tools=TOOLS)
            continue
        at = of % len(one.chats)
        *before, answer = one.chats[at]
        if kind == "rewrite":
            answer = {"role": "assistant", "content": f"something else {number}"}
        elif kind == "go on trimmed":
            answer = {**answer, "content": answer["content"].strip()}
        prompt = one.ask(
            *before, answer, user(f"and {of % 2}"), reply=reply, ends=ends, tools=TOOLS
        )
        if kind != "rewrite":
            sampled_before = [*one.prompts[at], *one.turns[at].tokens]
            assert prompt[: len(sampled_before)] == sampled_before

    sequences = merged_sequences(one.turns)
    trained = Counter[int]()
    for sequence in sequences:
        for turn, played_turn in enumerate(one.turns):
            if turn not in sequence.turns:
                continue
            begin = sequence.turns.index(turn)
            trained[turn] += 1
            assert sequence.tokens[:begin] == one.prompts[turn]
            end = begin + len(played_turn.tokens)
            assert sequence.tokens[begin:end] == list(played_turn.tokens)
            assert set(sequence.turns[begin:end]) == {turn}
    assert trained == Counter(turn for turn, t in enumerate(one.turns) if t.tokens)
    sampled = sum(turn != NOT_SAMPLED for s in sequences for turn in s.turns)
    assert sampled == sum(len(turn.tokens) for turn in one.turns)


def test_a_conversation_that_goes_on_is_one_sequence() -> None:
    one = agent()
    one.ask(user("one"), reply="first")
    one.ask(*one.chats[-1], user("two"), reply="second", ends=False)
    one.ask(*one.chats[-1], user("three"), reply="third")
    assert len(merged_sequences(one.turns)) == 1
    assert one.of.kinds == {"begun": 1, "continued": 2}


def test_branches_share_what_they_have_in_common_as_context() -> None:
    """Two branches from one answer: the first goes on with its sequence, the second has its own, in
    which that answer is context."""
    one = agent()
    one.ask(user("one"), reply="first")
    trunk = one.chats[-1]
    left = one.ask(*trunk, user("left"), reply="l")
    right = one.ask(*trunk, user("right"), reply="r")
    sequences = merged_sequences(one.turns)
    assert [[turn for turn in dict.fromkeys(s.turns) if turn >= 0] for s in sequences] == [
        [0, 1],
        [2],
    ]
    assert sequences[1].tokens[: len(right)] == right
    common = len(one.prompts[0]) + len(one.turns[0].tokens)
    assert left[:common] == right[:common]


def test_conversations_side_by_side_are_a_sequence_each() -> None:
    """A sub-agent asks between two requests of the main one."""
    one = agent()
    one.ask(user("main"), reply="m")
    main = one.chats[-1]
    one.ask(user("helper"), reply="h")
    helper = one.chats[-1]
    one.ask(*main, user("go on"), reply="m2")
    one.ask(*helper, user("go on"), reply="h2")
    assert len(merged_sequences(one.turns)) == 2
    assert one.of.kinds == {"begun": 2, "continued": 2}


def test_a_rewritten_answer_begins_a_sequence_and_is_counted() -> None:
    one = agent()
    one.ask(user("one"), reply="first")
    one.ask(user("one"), {"role": "assistant", "content": "edited"}, user("two"), reply="second")
    assert len(merged_sequences(one.turns)) == 2
    assert one.of.kinds == {"begun": 1, "rewritten": 1}


def test_a_call_may_come_back_with_its_arguments_written_in_another_way() -> None:
    one = agent()
    first = one.ask(user("add"), reply=CALL, tools=TOOLS)
    (*before, answer) = one.chats[-1]
    (call,) = answer["tool_calls"]
    call = {**call, "id": "mine", "function": {"name": "add", "arguments": '{ "a":1 }'}}
    result = {"role": "tool", "tool_call_id": "mine", "name": "add", "content": "2"}
    second = one.ask(*before, {**answer, "tool_calls": [call]}, result, reply="2", tools=TOOLS)
    sampled = [*first, *one.turns[0].tokens]
    assert second[: len(sampled)] == sampled
    assert one.of.kinds == {"begun": 1, "continued": 1}


def test_the_opening_of_a_call_is_prompt_in_this_turn_and_the_next() -> None:
    one, opening = agent(), CALL[: CALL.index("add")]
    first = one.ask(user("add"), reply=CALL[len(opening) :], tools=TOOLS, opening=opening)
    assert tokenizer().decode(first).endswith(opening)
    assert one.turns[0].action == CALL
    (call,) = one.chats[-1][-1]["tool_calls"]
    assert call["function"]["name"] == "add"
    result = {"role": "tool", "tool_call_id": call["id"], "name": "add", "content": "2"}
    second = one.ask(*one.chats[-1], result, reply="2", tools=TOOLS)
    assert second[: len(first) + len(one.turns[0].tokens)] == [*first, *one.turns[0].tokens]
    (sequence,) = merged_sequences(one.turns)
    assert sequence.turns[: len(first)] == [NOT_SAMPLED] * len(first)
    assert sum(turn != NOT_SAMPLED for turn in sequence.turns) == sum(
        len(turn.tokens) for turn in one.turns
    )


def test_other_tools_are_another_conversation() -> None:
    """Tools stand before all that was said, so what was sampled after others is no prefix."""
    one = agent()
    one.ask(user("one"), reply="first")
    one.ask(*one.chats[-1], user("two"), reply="second", tools=TOOLS)
    assert one.of.kinds == {"begun": 1, "rewritten": 1}
