"""Prompts for what an agent asks, by the very tokens that were sampled.

An agent sends the whole conversation with each request. Where it begins with one that was answered
before, and the answer, the prompt begins with the tokens of that prompt and of that answer, exactly
as they were sampled, and only what is new is tokenised. Several requests may go on from one answer,
and conversations may go on side by side, so the answers of an episode are a tree.

An answer counts as the one that was sampled if it shows a model the same: the ids of calls, how
their arguments are written, thinking and space around the text do not matter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Literal

from attrs import define, field, frozen

from rlc.envs.base import Action, Observation
from rlc.envs.inverted.conversations import shown
from rlc.envs.tool_chat import ToolChatHistory, conversation, readable

Message = Mapping[str, Any]
# What a request does: it begins a conversation, goes on from an answer, or says that something else
# was answered than was.
Kind = Literal["begun", "continued", "rewritten"]


@frozen(eq=False)
class Written:
    """A prompt that was written. ``said`` is what is new in it, as text for people."""

    tokens: list[int]
    said: str
    kind: Kind
    messages: tuple[Message, ...]  # the whole conversation
    chat: ToolChatHistory  # that has made it


@define(eq=False)
class Conversations:
    """What one episode has asked, and what was answered."""

    new_chat: Callable[[], ToolChatHistory]
    kinds: Counter[Kind] = field(factory=Counter, init=False)
    _chats: dict[bytes, ToolChatHistory] = field(factory=dict, init=False)

    def write(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> Written:
        """Return the prompt of a request. Raise EnvError if the model's renderer cannot show it."""
        whole = conversation(messages, tools).messages
        before = _keys(whole[:-1])  # an answer is gone on from with something new
        answered = [(at, key) for at, key in enumerate(before) if key in self._chats]
        if answered:
            at, key = answered[-1]
            chat, later, said = self._chats[key].copy(), whole[at + 1 :], whole[at + 1 :]
        else:
            chat, later, said = self.new_chat(), whole, whole[1:]
        kind: Kind = "continued" if answered else "begun"
        if self._chats and any(message["role"] == "assistant" for message in later):
            kind = "rewritten"
        tokens = chat.observe(Observation("", messages=later))
        return Written(tokens, readable(said), kind, whole, chat)

    def answer(self, written: Written, message: Message, tokens: list[int]) -> Action:
        """Keep an answer, which is sent as a ``message``; return it as the renderer reads it."""
        chat = written.chat.copy()
        action = chat.reply(tokens)
        self._chats[_keys((*written.messages, message))[-1]] = chat
        self.kinds[written.kind] += 1
        return action


def _keys(messages: Sequence[Message]) -> list[bytes]:
    """For each message a digest of the conversation up to it."""

    def after(before: bytes, message: Message) -> bytes:
        content = json.dumps(shown(message), sort_keys=True, default=str).encode()
        return blake2b(before + content, digest_size=16).digest()

    return [*accumulate(messages, after, initial=b"")][1:]
