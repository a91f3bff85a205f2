"""Conversations that a program sends whole, as messages in OpenAI's form, with each request.

A prompt begins with the sampled tokens of the longest conversation that was answered before; only
what is new is tokenised. Several requests may go on from one answer, so the answers are a tree. An
answer counts as the sampled one if it shows a model the same: ids of calls, how arguments are
written, thinking and outer space do not matter.
"""

from __future__ import annotations

import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from threading import Lock
from typing import Any, Literal

from attrs import define, field, frozen

from rlc.chat.prompts import ChatHistory, calls_of, conversation, readable, text_of
from rlc.chat.turns import NO_CHUNKS, Action, Chunks, EnvError, Observation

Message = Mapping[str, Any]
Plain = dict[str, Any]
# A prompt begins a conversation, continues it after an answer, or has another answer in its place.
Kind = Literal["begun", "continued", "rewritten"]


@frozen(eq=False)
class TranscriptPrompt:
    """A prompt of a whole conversation. ``text`` is what is new in it, for people."""

    tokens: list[int]
    text: str
    kind: Kind
    messages: tuple[Message, ...]  # the whole conversation
    chat: ChatHistory  # that has made it

    @property
    def chunks(self) -> Chunks:
        """What is not text among the tokens."""
        return self.chat.chunks


@define(eq=False)
class TranscriptTree:
    """What has been asked, and what was answered: of one episode, or of one model that is served.
    With ``most`` tokens of kept answers, the ones that nobody went on from make room for others."""

    new_chat: Callable[[], ChatHistory]
    most: int | None = None
    kinds: Counter[Kind] = field(factory=Counter, init=False)
    # The chats up to each answer, by a digest of the conversation that it ends and its thinking.
    _answered: OrderedDict[bytes, dict[str, ChatHistory]] = field(factory=OrderedDict, init=False)
    _kept: int = field(default=0, init=False)  # tokens
    _lock: Lock = field(factory=Lock, init=False)  # prompts are written in threads

    def write(self, messages: Sequence[Message]) -> TranscriptPrompt:
        """Return the prompt of a conversation. Raise EnvError if the renderer cannot show it."""
        whole = tuple(messages)
        chat, at = self._last_answer(whole[:-1])  # an answer is followed by something new
        later = whole[at:]
        kind: Kind = "begun" if chat is None else "continued"
        if self.kinds and any(message["role"] == "assistant" for message in later):
            kind = "rewritten"
        text = readable(whole[max(at, 1) :])
        chat = self.new_chat() if chat is None else chat.copy()
        return TranscriptPrompt(
            chat.observe(Observation("", messages=later)), text, kind, whole, chat
        )

    def answer(
        self, prompt: TranscriptPrompt, tokens: list[int], message: Message | None = None
    ) -> Action:
        """Keep an answer, which is sent as a ``message`` (None: that of :func:`reply_message`)."""
        chat = prompt.chat.copy()
        action = chat.reply(tokens)
        sent = message or reply_message(action, 0)
        *_, digest = _digests((*prompt.messages, sent))
        with self._lock:
            answers = self._answered.pop(digest, {})
            before = answers.pop(_thinking(sent), None)
            self._answered[digest] = {**answers, _thinking(sent): chat}
            self._kept += chat.length - (before.length if before else 0)
            while self.most is not None and self._kept > self.most:
                _, oldest = self._answered.popitem(last=False)
                self._kept -= sum(one.length for one in oldest.values())
            self.kinds[prompt.kind] += 1
        return action

    def _last_answer(self, messages: Sequence[Message]) -> tuple[ChatHistory | None, int]:
        """Return the chat up to the last answer among messages, and the number of those; of several
        with the same text that with the same thinking, or the latest."""
        chat, at = None, 0
        with self._lock:
            for number, digest in enumerate(_digests(messages), start=1):
                if answers := self._answered.get(digest):
                    self._answered.move_to_end(digest)
                    *_, latest = answers.values()
                    chat, at = answers.get(_thinking(messages[number - 1]), latest), number
        return chat, at


class TranscriptHistory:
    """A history of whole conversations; an edited one is a sequence of its own."""

    def __init__(self, new_chat: Callable[[], ChatHistory]) -> None:
        self._tree = TranscriptTree(new_chat)
        self._prompt: TranscriptPrompt | None = None
        self.stop = new_chat().stop

    @property
    def chunks(self) -> Chunks:
        return NO_CHUNKS if self._prompt is None else self._prompt.chunks

    def observe(self, observation: Observation) -> list[int]:
        self._prompt = self._tree.write(observation.messages)
        return self._prompt.tokens

    def reply(self, tokens: list[int]) -> Action:
        assert self._prompt is not None, "a reply comes after its prompt"
        return self._tree.answer(self._prompt, tokens)


def whole_conversation(messages: Sequence[Message], tools: Sequence[Message]) -> Observation:
    """Return a conversation that a reply is asked for, with the tools that may be called. Its text
    is what came after the last reply. Raise EnvError for what cannot be shown to a model."""
    plain, names = list[Plain](), dict[str, str]()
    for message in messages:
        kept = {name: value for name, value in message.items() if value is not None}
        content = kept.get("content", "")
        kept["content"] = content if isinstance(content, str) else [*map(_part, content)]
        for call in kept.get("tool_calls", ()):
            names[call["id"]] = call["function"]["name"]
        if kept.get("role") == "tool":  # some models are shown which tool it was
            kept.setdefault("name", names.get(kept.get("tool_call_id", ""), ""))
        plain.append(kept)
    replies = [at for at, message in enumerate(plain) if message.get("role") == "assistant"]
    seen = conversation(plain, tools)
    later = plain[replies[-1] + 1 :] if replies else seen.messages[1:]
    return Observation(readable(later), None, messages=seen.messages)


def _part(part: Message) -> Plain:
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "image_url":
        source = part["image_url"]
        url = source if isinstance(source, str) else source["url"]
        if url.startswith("data:"):
            return {"type": "image", "image": url}
        raise EnvError("the environment shows an image by its address; only data URIs can be read")
    raise EnvError(f"the environment shows a part of the type {part.get('type')}")


def reply_message(action: Action, turn: int) -> Plain:
    """Return a reply as a message. Calls without an id get one that no other turn has; those that
    could not be parsed stand in the text as they were sampled."""
    reply = action.message or {"role": "assistant", "content": action.text}
    text = text_of(reply)
    for call in reply.get("unparsed_tool_calls") or ():
        text += "" if call.raw_text in text else call.raw_text
    message: Plain = {"role": "assistant", "content": text}
    content = reply.get("content")
    parts = [] if content is None or isinstance(content, str) else content
    if thought := "".join(part["thinking"] for part in parts if part["type"] == "thinking"):
        message["reasoning_content"] = thought
    calls = [
        {
            "type": "function",
            "id": f"call_{turn}_{number}" if given == f"call_{number}" else given,
            "function": {"name": name, "arguments": arguments},
        }
        for number, (given, name, arguments) in enumerate(calls_of(reply))
    ]
    return {**message, "tool_calls": calls} if calls else message


def _digests(messages: Iterable[Message]) -> Iterator[bytes]:
    """Yield a digest of the conversation up to each message."""
    digest = blake2b(digest_size=16)
    for message in messages:
        digest.update(_key(message).encode("utf-8", "surrogatepass"))
        yield digest.digest()


def _thinking(message: Message) -> str:
    return str(message.get("reasoning_content") or "").strip()


def _key(message: Message) -> str:
    calls = []
    for call in message.get("tool_calls") or ():
        arguments = call["function"]["arguments"]
        with suppress(TypeError, ValueError):
            arguments = json.loads(arguments)
        calls.append((call["function"]["name"], arguments))
    content = message.get("content") or ""
    if not isinstance(content, str):
        content = [part for part in content if part["type"] != "thinking"]
        if all(part["type"] == "text" for part in content):
            content = "".join(part["text"] for part in content)
    if isinstance(content, str) and message.get("role") == "assistant":
        content = content.strip()
    tool = message.get("name") if message.get("role") == "tool" else None  # some models see which
    shown = message.get("role"), content, calls, message.get("tools"), tool
    return json.dumps(shown, sort_keys=True, default=str)
