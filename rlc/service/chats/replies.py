"""The tokens of a reply to a message, as they come: text, reasoning and calls of tools.

A streamed reply passes on what is certain: text up to anything that may begin a call of a tool, and
reasoning apart from it. The model's renderer has the last word on the complete reply, and what it
finds beyond what was passed on follows at the end. A reply that is not streamed is read in the same
way, so that both are the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal

from attrs import define, field, frozen

from rlc.service.chats.prompts import UNRENDERED, Tool, fits, is_object
from rlc.service.interface import SampledToken

_HALF = "\N{REPLACEMENT CHARACTER}"  # of bytes that are no complete character
_WINDOW = 16  # tokens that are decoded together with a new one


@define(eq=False)
class TextDecoder:
    """Decodes a sequence of tokens as it grows, as the tokenizer would decode all of them."""

    tokenizer: Any
    _window: list[int] = field(factory=list, init=False)
    _sent: int = field(default=0, init=False)  # characters of the window

    def feed(self, token: int) -> str:
        """Return the text that a token completes."""
        self._window.append(token)
        text = self.tokenizer.decode(self._window)
        is_complete = not text.endswith(_HALF)
        new = self._upto(text, len(text) - (not is_complete))
        if is_complete and len(self._window) > _WINDOW:
            self._window = self._window[-4:]
            self._sent = len(self.tokenizer.decode(self._window))
        return new

    def finish(self) -> str:
        """Return the rest, when no token follows."""
        text = self.tokenizer.decode(self._window)
        return self._upto(text, len(text))

    def _upto(self, text: str, end: int) -> str:
        new = text[self._sent : end]
        self._sent = max(self._sent, end)
        return new


@define(eq=False)
class StopCutter:
    """Passes text on up to the first of some stops, but not what may be the start of one."""

    stops: Sequence[str]
    matched: str | None = field(default=None, init=False)
    _held: str = field(default="", init=False)

    def feed(self, text: str) -> str:
        """Return the text that is certain to come before a stop."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = [(text.index(stop), stop) for stop in self.stops if stop in text]
        if found:
            end, self.matched = min(found)
            self._held = ""
            return text[:end]
        keep = longest_start(text, self.stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Return the rest, when no text follows."""
        rest, self._held = self._held, ""
        return rest


def longest_start(text: str, marks: Iterable[str]) -> int:
    """Return the number of characters at the end of a text that are the start of a mark."""
    starts = (mark[:length] for mark in marks for length in range(1, len(mark)))
    return max((len(start) for start in starts if text.endswith(start)), default=0)


_OPEN, _CLOSE = "<think>", "</think>"
# Beginnings of the markup around calls of tools and around channels, in the formats of all models.
_MARKS = ("<|", "<｜", "<tool", "<function")


@frozen
class ReplyPiece:
    text: str = ""
    reasoning: str = ""


@frozen
class SampledCall:
    """A call of a tool; the arguments are JSON, as the model wrote them."""

    name: str
    arguments: str
    id: str | None  # if the model's format has one


@frozen
class End:
    """The end of a reply, with the text that was not passed on before."""

    piece: ReplyPiece
    calls: tuple[SampledCall, ...]
    reason: Literal["stop", "length", "tool_calls"]
    stop: str | None  # which of the request's stops ended it


@define(eq=False)
class TextReader:
    """Reads a reply that is plain text."""

    tokenizer: Any
    end_tokens: frozenset[int]
    stops: Sequence[str]
    _decoder: TextDecoder = field(init=False)
    _cutter: StopCutter = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._decoder = TextDecoder(self.tokenizer)
        self._cutter = StopCutter(self.stops)

    def feed(self, token: int) -> ReplyPiece:
        return ReplyPiece(self.more(token))

    def finish(self, stop_reason: Literal["stop", "length"]) -> End:
        return End(ReplyPiece(self.rest()), (), stop_reason, self.matched)

    @property
    def matched(self) -> str | None:
        return self._cutter.matched

    def more(self, token: int) -> str:
        """Return the text that is certain with another token."""
        return "" if token in self.end_tokens else self._cutter.feed(self._decoder.feed(token))

    def rest(self) -> str:
        return self._cutter.feed(self._decoder.finish()) + self._cutter.finish()


@define
class _Channel:
    """The text or reasoning that was passed on, without white space that may be the last."""

    drops_space: bool  # at its start
    sent: str = ""
    pending: str = ""

    def pass_on(self, new: str) -> str:
        text = self.pending + new
        if self.drops_space and not self.sent:
            text = text.lstrip()
        certain = text.rstrip()
        self.pending = text[len(certain) :]
        self.sent += certain
        return certain

    def rest_of(self, full: str, otherwise: str) -> str:
        """Return the rest of the complete text, or ``otherwise`` if that begins differently."""
        return full[len(self.sent) :] if full.startswith(self.sent) else otherwise


@define(eq=False)
class ChatReader:
    """Reads a reply in a chat's format."""

    renderer: Any
    text: TextReader
    tools: Sequence[Tool]  # that the request offers
    is_reasoning: bool = False  # the prompt ends with the opening of a reasoning
    _tokens: list[int] = field(factory=list, init=False)
    _raw: str = field(default="", init=False)
    _pending: str = field(default="", init=False)  # of the raw text, what is not passed on
    _in_markup: bool = field(default=False, init=False)  # the renderer decides from here on
    _reasoned: bool = field(init=False)
    _answer: _Channel = field(factory=lambda: _Channel(False), init=False)
    _reasoning: _Channel = field(factory=lambda: _Channel(True), init=False)

    def __attrs_post_init__(self) -> None:
        self._reasoned = self.is_reasoning

    def feed(self, token: int) -> ReplyPiece:
        self._tokens.append(token)
        return self._read(self.text.more(token))

    def finish(self, stop_reason: Literal["stop", "length"]) -> End:
        piece = self._read(self.text.rest())
        calls: tuple[SampledCall, ...] = ()
        matched = self.text.matched
        text, reasoning = self._answer.pending, self._reasoning.pending
        if self.is_reasoning:
            reasoning += self._pending
        else:
            text += self._pending
        if self._in_markup and (read := self._parsed(matched is not None)):
            full_text, full_reasoning, calls = read
            text = self._answer.rest_of(full_text, text)
            reasoning = self._reasoning.rest_of(full_reasoning, reasoning)
        elif self._reasoned:
            reasoning = reasoning.rstrip()
        last = ReplyPiece(piece.text + text, piece.reasoning + reasoning)
        called = calls and stop_reason == "stop"
        return End(last, calls, "tool_calls" if called else stop_reason, matched)

    def _read(self, new: str) -> ReplyPiece:
        """Sort some more raw text into answer and reasoning."""
        self._raw += new
        self._pending += new
        text = reasoning = ""
        while not self._in_markup:
            marks = (_CLOSE,) if self.is_reasoning else (_OPEN, *_MARKS)
            found = [(self._pending.index(mark), mark) for mark in marks if mark in self._pending]
            at, mark = min(found, default=(len(self._pending), ""))
            if not found:
                at -= longest_start(self._pending, marks)
            if self.is_reasoning:
                reasoning += self._pending[:at]
            else:
                text += self._pending[:at]
            self._in_markup = mark in _MARKS
            self._pending = self._pending[at if self._in_markup else at + len(mark) :]
            if mark not in (_OPEN, _CLOSE):
                break
            self.is_reasoning = mark == _OPEN
            self._reasoned = True
        self._answer.drops_space = self._reasoned
        return ReplyPiece(self._answer.pass_on(text), self._reasoning.pass_on(reasoning))

    def _parsed(self, was_cut: bool) -> tuple[str, str, tuple[SampledCall, ...]] | None:
        """Return text, reasoning and calls of the reply as the renderer reads it; None if it
        cannot, or a call is wrong or of no tool that was offered."""
        ends = [stop for stop in self.renderer.get_stop_sequences() if isinstance(stop, int)]
        tokens = self._tokens
        if was_cut:
            tokens = self.text.tokenizer.encode(self._raw, add_special_tokens=False)
        if ends and (not tokens or tokens[-1] not in ends):
            tokens = [*tokens, ends[0]]
        try:
            message, _ = self.renderer.parse_response(tokens)
        except UNRENDERED:
            return None
        calls = tuple(
            SampledCall(call.function.name, call.function.arguments, call.id)
            for call in message.get("tool_calls") or ()
        )
        if calls and not (self.tools and all(map(self._fits, calls))):
            return None
        parts = message["content"]
        if isinstance(parts, str):
            parts = [{"type": "text", "text": parts}]
        text = "".join(p["text"] for p in parts if p["type"] == "text")
        for call in message.get("unparsed_tool_calls") or ():
            text += "" if call.raw_text in text else call.raw_text  # one without an end is there
        reasoning = "".join(p["thinking"] for p in parts if p["type"] == "thinking").strip()
        text = text.lstrip() if reasoning or self._reasoned else text
        return text.rstrip() if calls else text, reasoning, calls

    def _fits(self, call: SampledCall) -> bool:
        """Return whether arguments fit their tool, or are an object for an unknown tool."""
        required = {tool.name: tool.required for tool in self.tools}
        if call.name not in required:
            return is_object(call.arguments)
        schema = required[call.name]
        return schema is None or fits(call.arguments, schema)


Reader = TextReader | ChatReader


@frozen
class Step:
    """A token of a choice, and what it adds to the reply."""

    choice: int
    token: SampledToken
    piece: ReplyPiece
    end: End | None  # with the last token


async def read_steps(
    tokens: AsyncIterator[tuple[int, SampledToken]], readers: Sequence[Reader]
) -> AsyncIterator[Step]:
    """Read the tokens of several replies as they come, the ends in a thread: calls are checked."""
    async for choice, token in tokens:
        if token.stop_reason is None:
            yield read_step(readers[choice], choice, token)
        else:
            yield await asyncio.to_thread(read_step, readers[choice], choice, token)


def read_step(reader: Reader, choice: int, token: SampledToken) -> Step:
    piece, end = reader.feed(token.token), None
    if token.stop_reason is not None:
        end = reader.finish(token.stop_reason)
        piece = ReplyPiece(piece.text + end.piece.text, piece.reasoning + end.piece.reasoning)
    return Step(choice, token, piece, end)


@define
class FullReply:
    text: str = ""
    reasoning: str = ""
    tokens: list[SampledToken] = field(factory=list)
    end: End | None = None

    def add(self, step: Step) -> None:
        self.text += step.piece.text
        self.reasoning += step.piece.reasoning
        self.tokens.append(step.token)
        self.end = step.end
