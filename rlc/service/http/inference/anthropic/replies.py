"""Answers of Anthropic's Messages API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import define, field

from rlc.service.chats.model import Generation
from rlc.service.chats.prompts import Message
from rlc.service.chats.replies import End, Step, Whole
from rlc.service.http.inference.anthropic.requests import MessagesRequest, reply_message

_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
Json = dict[str, Any]


@define(eq=False)
class MessageAnswer:
    """The answer to a request, whole or in events."""

    id: str
    generation: Generation
    request: MessagesRequest
    _block: int = field(default=-1, init=False)  # the one that is open
    _kind: str | None = field(default=None, init=False)

    def whole(self, wholes: Sequence[Whole]) -> Json:
        """The answer that is not streamed."""
        (whole,) = wholes
        assert whole.end is not None
        return {**self._head(self._content(whole), whole), **self._ending(whole.end)}

    def message(self, i: int, whole: Whole) -> Message:  # noqa: ARG002
        """The reply as a later request has it."""
        return reply_message(self._content(whole))

    def _content(self, whole: Whole) -> list[Json]:
        content: list[Json] = []
        if whole.reasoning:
            content.append({"type": "thinking", "thinking": whole.reasoning, "signature": ""})
        if whole.text:
            content.append({"type": "text", "text": whole.text})
        content += [
            {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
            for call_id, name, arguments in (self._calls(whole.end) if whole.end else ())
        ]
        return content

    def first(self) -> list[Json]:
        """The events before the first token."""
        start = {**self._head([], None), "stop_reason": None, "stop_sequence": None}
        return [{"type": "message_start", "message": start}]

    def step(self, step: Step) -> list[Json]:
        """The events for another token: none if it has nothing to say yet."""
        events: list[Json] = []
        if step.piece.reasoning:
            events += self._open("thinking", {"thinking": "", "signature": ""})
            events.append(self._delta("thinking_delta", thinking=step.piece.reasoning))
        if step.piece.text:
            events += self._open("text", {"text": ""})
            events.append(self._delta("text_delta", text=step.piece.text))
        for call_id, name, arguments in self._calls(step.end) if step.end else ():
            events += self._close()
            events += self._open("tool_use", {"id": call_id, "name": name, "input": {}})
            events.append(self._delta("input_json_delta", partial_json=arguments))
        return events

    def last(self, wholes: Sequence[Whole]) -> list[Json]:
        """The events after the last token."""
        (whole,) = wholes
        assert whole.end is not None
        delta = {"type": "message_delta", "delta": self._ending(whole.end)}
        said = {"usage": self._usage(whole), **self._token_ids(whole)}
        return [*self._close(), {**delta, **said}, {"type": "message_stop"}]

    def _open(self, kind: str, block: Json) -> Iterator[Json]:
        if kind == self._kind:
            return
        yield from self._close()
        self._block, self._kind = self._block + 1, kind
        started = {"type": kind, **block}
        yield {"type": "content_block_start", "index": self._block, "content_block": started}

    def _close(self) -> list[Json]:
        if self._kind is None:
            return []
        self._kind = None
        return [{"type": "content_block_stop", "index": self._block}]

    def _delta(self, kind: str, **said: str) -> Json:
        delta = {"type": kind, **said}
        return {"type": "content_block_delta", "index": self._block, "delta": delta}

    def _head(self, content: list[Json], whole: Whole | None) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.generation.model.name,
            "content": content,
            "usage": self._usage(whole),
            **self._token_ids(whole),
        }

    def _ending(self, end: End) -> Json:
        stop = end.stop if end.stop in (self.request.stop_sequences or ()) else None
        reason = _REASONS.get(end.reason, "end_turn" if stop is None else "stop_sequence")
        return {"stop_reason": reason, "stop_sequence": stop}

    def _usage(self, whole: Whole | None) -> Json:
        prompt = sum(map(len, self.generation.prompts))
        if whole is None:
            return {"input_tokens": prompt, "output_tokens": 0}
        cached = self.generation.cached_tokens
        return {
            "input_tokens": prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": len(whole.tokens),
        }

    def _token_ids(self, whole: Whole | None) -> Json:
        if whole is None or not self.request.return_token_ids:
            return {}
        return {
            "prompt_token_ids": list(self.generation.prompts[0]),
            "token_ids": [token.token for token in whole.tokens],
            "logprobs": [token.logprob for token in whole.tokens],
        }

    def _calls(self, end: End) -> list[tuple[str, str, str]]:
        """Ids, names and arguments of the calls."""
        own = self.id.removeprefix("msg_")
        return [
            (call.id or f"toolu_{own}_{k}", call.name, call.arguments)
            for k, call in enumerate(end.calls)
        ]
