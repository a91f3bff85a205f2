"""Anthropic's API: what a request means, and how its answer is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from attrs import define, field
from pydantic import Field

from rlc.service.chats.forms import FREE, ReplyForm
from rlc.service.chats.model import Generation
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import End, FullReply, Step
from rlc.service.http import RefusedRequest
from rlc.service.inference.endpoint import (
    MOST_MESSAGES,
    Body,
    Strict,
    image_part,
    must_call,
    require,
)
from rlc.service.interface import SamplingRequest


class _CacheControl(Strict):
    """Has no effect: prompts are always cached."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None


class _Block(Strict):
    type: str
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[_Block] | None = None
    is_error: bool | None = None
    cache_control: _CacheControl | None = None
    citations: None = None
    caller: Any = None
    source: Any = None


class _Turn(Strict):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Block]


class _Tool(Strict):
    name: str = Field(min_length=1)
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    type: str | None = None
    strict: bool | None = None
    cache_control: _CacheControl | None = None


class _ToolChoice(Strict):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Metadata(Strict):
    user_id: str | None = None


class CountRequest(Body):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = dict.fromkeys(
        ("context_management", "mcp_servers", "output_config"), ()
    )

    model: str
    messages: list[_Turn] = Field(min_length=1, max_length=MOST_MESSAGES)
    system: str | list[_Block] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    renderer: str | None = None  # an extension
    cache_control: _CacheControl | None = None

    def offered(self) -> list[Tool]:
        """Return the tools that the model may call. Raise ChatError for strict tools that cannot be
        checked, and RefusedRequest (400) for tools that Anthropic runs."""
        for tool in self.tools or ():
            is_own = tool.type in (None, "custom") and tool.input_schema is not None
            problem = f"The tool {tool.name} is of type {tool.type}"
            require(is_own, "tools", f"{problem}; a tool here has an input_schema.")
        return [
            Tool(
                tool.name,
                tool.description or "",
                tool.input_schema or {},
                # The API has no room for arguments that are no object.
                {**(tool.input_schema or {} if tool.strict else {}), "type": "object"},
            )
            for tool in self.tools or ()
            if self.tool_choice is None or self.tool_choice.type != "none"
        ]

    def form(self, tools: Sequence[Tool]) -> ReplyForm:
        """Return what a reply has to be. Raise RefusedRequest (400) for a choice of no tool."""
        choice = self.tool_choice
        if choice is None or choice.type == "none":
            return FREE
        chosen = {"any": "required", "tool": choice.name}.get(choice.type, "auto")
        return ReplyForm(must_call(chosen, tools), bool(choice.disable_parallel_tool_use))

    def conversation(self) -> list[Message]:
        """Return the messages as plain data in OpenAI's form, the system's first. Raise
        RefusedRequest (400) for content that models here cannot read."""
        texts = [] if self.system is None else [_text(self.system, "system")]
        turns = []
        for i, turn in enumerate(self.messages):
            if turn.role == "system":  # some clients put more of it among the messages
                texts.append(_text(turn.content, f"messages[{i}]"))
            else:
                turns += _messages(turn, f"messages[{i}]")
        system = "\n\n".join(filter(None, texts))
        return [*([{"role": "system", "content": system}] if system else []), *turns]


class MessagesRequest(CountRequest):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        **CountRequest.without_effect,
        "container": (),
        "service_tier": ("auto", "standard_only"),
        "thinking": ({"type": "disabled"},),
    }

    max_tokens: int = Field(ge=1)
    temperature: float | None = Field(None, ge=0, le=1)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=1)
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    metadata: _Metadata | None = None
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)  # an extension
    return_token_ids: bool | None = None  # an extension

    def labels(self) -> tuple[str | None, dict[str, str]]:
        """Return the user and the metadata, of which this API has none."""
        return None if self.metadata is None else self.metadata.user_id, {}

    def how(self) -> SamplingRequest:
        """Return how to sample. Raise RefusedRequest (400) for a stop that is empty."""
        stops = tuple(self.stop_sequences or ())
        require(all(stops), "stop_sequences", "A stop sequence must not be empty.")
        return SamplingRequest(
            max_tokens=self.max_tokens,
            temperature=1.0 if self.temperature is None else self.temperature,
            top_p=1.0 if self.top_p is None else self.top_p,
            top_k=self.top_k or -1,
            seed=self.seed,
            stop=stops,
        )


def _messages(turn: _Turn, where: str) -> list[Message]:
    """Return a turn as messages: results of tools are messages of their own, before the user's."""
    if isinstance(turn.content, str):
        return [{"role": turn.role, "content": turn.content}]
    results: list[Message] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in turn.content:
        if block.type == "text" and block.text is not None:
            parts.append({"type": "text", "text": block.text})
        elif (block.type, turn.role) == ("thinking", "assistant") and block.thinking is not None:
            parts.append({"type": "thinking", "thinking": block.thinking})
        elif (block.type, turn.role) == ("tool_use", "assistant") and block.id and block.name:
            called = {"name": block.name, "arguments": json.dumps(block.input or {})}
            calls.append({"id": block.id, "type": "function", "function": called})
        elif (block.type, turn.role) == ("image", "user"):
            source = block.source if isinstance(block.source, dict) else {}
            url = f"data:{source.get('media_type')};base64,{source.get('data')}"
            parts.append(image_part(url if source.get("type") == "base64" else None, where))
        elif (block.type, turn.role) == ("tool_result", "user") and block.tool_use_id:
            text = "" if block.content is None else _text(block.content, where)
            results.append({"role": "tool", "content": text, "tool_call_id": block.tool_use_id})
        else:
            problem = f"{where} has a block of type {block.type!r} that models here cannot read"
            readable = "they read text, some images, and calls of tools with their results."
            raise RefusedRequest(400, f"{problem}: {readable}", param="messages")
    if not (parts or calls):
        return results
    only_text = all(part["type"] == "text" for part in parts)
    content: Any = "".join(part["text"] for part in parts) if only_text else parts
    return [
        *results,
        {"role": turn.role, "content": content, **({"tool_calls": calls} if calls else {})},
    ]


def _text(content: str | list[_Block], where: str) -> str:
    if isinstance(content, str):
        return content
    for block in content:
        problem = f"{where} has a block of type {block.type!r}; models here read text only."
        require(block.type == "text" and block.text is not None, "messages", problem)
    return "".join(block.text or "" for block in content)


_REASONS = {"length": "max_tokens", "tool_calls": "tool_use"}
Json = dict[str, Any]


@define(eq=False)
class MessageAnswer:
    """An answer as a whole, or in events; see `rlc.service.inference.openai`."""

    id: str
    generation: Generation
    request: MessagesRequest
    _block: int = field(default=-1, init=False)  # the one that is open
    _kind: str | None = field(default=None, init=False)

    def full(self, replies: Sequence[FullReply]) -> Json:
        (reply,) = replies
        assert reply.end is not None
        return {**self._head(self._content(reply), reply), **self._ending(reply.end)}

    def message(self, i: int, reply: FullReply) -> Message:  # noqa: ARG002
        turn = _Turn.model_validate({"role": "assistant", "content": self._content(reply)})
        return next(iter(_messages(turn, "content")), {"role": "assistant", "content": ""})

    def _content(self, reply: FullReply) -> list[Json]:
        content: list[Json] = []
        if reply.reasoning:
            content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
        if reply.text:
            content.append({"type": "text", "text": reply.text})
        content += [
            {"type": "tool_use", "id": call_id, "name": name, "input": json.loads(arguments)}
            for call_id, name, arguments in (self._calls(reply.end) if reply.end else ())
        ]
        return content

    def first(self) -> list[Json]:
        start = {**self._head([], None), "stop_reason": None, "stop_sequence": None}
        return [{"type": "message_start", "message": start}]

    def step(self, step: Step) -> list[Json]:
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

    def last(self, replies: Sequence[FullReply]) -> list[Json]:
        (reply,) = replies
        assert reply.end is not None
        delta: Json = {"type": "message_delta", "delta": self._ending(reply.end)}
        delta |= {"usage": self._usage(reply), **self._token_ids(reply)}
        return [*self._close(), delta, {"type": "message_stop"}]

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

    def _delta(self, kind: str, **more: str) -> Json:
        delta = {"type": kind, **more}
        return {"type": "content_block_delta", "index": self._block, "delta": delta}

    def _head(self, content: list[Json], reply: FullReply | None) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.generation.model.name,
            "content": content,
            "usage": self._usage(reply),
            **self._token_ids(reply),
        }

    def _ending(self, end: End) -> Json:
        stop = end.stop if end.stop in (self.request.stop_sequences or ()) else None
        reason = _REASONS.get(end.reason, "end_turn" if stop is None else "stop_sequence")
        return {"stop_reason": reason, "stop_sequence": stop}

    def _usage(self, reply: FullReply | None) -> Json:
        prompt = sum(map(len, self.generation.prompts))
        if reply is None:
            return {"input_tokens": prompt, "output_tokens": 0}
        cached = self.generation.cached_tokens
        return {
            "input_tokens": prompt - cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": cached,
            "output_tokens": len(reply.tokens),
        }

    def _token_ids(self, reply: FullReply | None) -> Json:
        if reply is None or not self.request.return_token_ids:
            return {}
        return {
            "prompt_token_ids": list(self.generation.prompts[0]),
            "token_ids": [token.token for token in reply.tokens],
            "logprobs": [token.logprob for token in reply.tokens],
        }

    def _calls(self, end: End) -> list[tuple[str, str, str]]:
        own = self.id.removeprefix("msg_")
        return [
            (call.id or f"toolu_{own}_{k}", call.name, call.arguments)
            for k, call in enumerate(end.calls)
        ]
