"""OpenAI's API of responses: a request in the terms of a chat, and its answer in items. Nothing is
kept between requests, so that each has the whole conversation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from attrs import define, field
from pydantic import Field

from rlc.service.chats.forms import ReplyForm
from rlc.service.chats.model import Generation
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import End, FullReply, Step
from rlc.service.inference.endpoint import MOST_MESSAGES, Strict, require
from rlc.service.inference.openai import (
    Function,
    SampledRequest,
    Schema,
    offered_tools,
    plain_message,
    reply_form,
    shown_sampling,
)
from rlc.service.interface import SamplingRequest

Json = dict[str, Any]


class _Part(Strict):
    type: str
    text: str | None = None
    image_url: str | None = None
    detail: str | None = None
    annotations: list[Any] | None = Field(None, max_length=0)
    logprobs: list[Any] | None = Field(None, max_length=0)


class _Item(Strict):
    """An item of the input. Clients send received items back, with all of their fields."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    id: str | None = None
    status: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[_Part] | None = None
    phase: Any = None
    call_id: str | None = None
    name: str | None = None
    namespace: None = None
    caller: Any = None
    arguments: str | None = None
    output: str | list[_Part] | None = None
    summary: list[Any] | None = Field(None, max_length=0)
    encrypted_content: None = None


class _Kind(Strict):
    type: Literal["function"]


class _Tool(Function, _Kind):  # the kind is read first
    defer_loading: Literal[False] | None = None


class _Text(Strict):
    format: Schema | None = None
    verbosity: Literal["medium"] | None = None


class ResponsesRequest(SampledRequest):
    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {
        "background": (False,),
        "include": ([], ["reasoning.encrypted_content"]),  # reasoning is readable
        "reasoning": ({},),
        "service_tier": ("auto", "default"),
        "store": (False,),
        "stream_options": ({}, {"include_obfuscation": False}),
        "top_logprobs": (0,),
        "truncation": ("disabled",),
        **dict.fromkeys(("context_management", "max_tool_calls", "moderation", "prompt"), ()),
    }

    input: str | list[_Item] = Field(min_length=1)
    instructions: str | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    text: _Text | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    previous_response_id: str | None = None
    conversation_: Any = Field(None, alias="conversation")
    prompt_cache_key: str | None = None  # prompts are always cached
    prompt_cache_retention: str | None = None
    safety_identifier: str | None = None
    renderer: str | None = None  # an extension

    def how(self) -> SamplingRequest:
        return self.sampled(self.max_output_tokens)

    def offered(self) -> list[Tool]:
        """Return the tools that the model may call; see `ChatRequest`."""
        return offered_tools(self.tools or (), self.tool_choice)

    def form(self, tools: Sequence[Tool]) -> ReplyForm:
        """Return what a reply has to be; see `ChatRequest`."""
        wanted = None if self.text is None else self.text.format
        schema = None if wanted is None else wanted.required()
        return reply_form(self.tool_choice, tools, self.parallel_tool_calls, schema)

    def conversation(self) -> list[Message]:
        """Return the messages as plain data. Raise RefusedRequest (400) for one that refers to what
        would have been kept, and for unreadable content."""
        referred = {
            "previous_response_id": self.previous_response_id,
            "conversation": self.conversation_,
        }
        for name, value in referred.items():
            problem = f"{name}: this server keeps no responses; send the whole conversation."
            require(value is None, name, problem)
        chat: list[Json] = []
        if self.instructions:
            chat.append({"role": "system", "content": self.instructions})
        given = self.input
        question = {"role": "user", "content": given}
        items = [_Item.model_validate(question)] if isinstance(given, str) else given
        require(len(items) <= MOST_MESSAGES, "input", f"input has more than {MOST_MESSAGES} items.")
        for i, item in enumerate(items):
            _add(chat, item, f"input[{i}]")
        return [plain_message(message, "input") for message in chat]


def _add(chat: list[Json], item: _Item, where: str) -> None:
    """Add an item to messages of a chat: what a reply consists of is one message."""
    if item.type == "function_call_output":
        content = _parts(item.output or "", where)
        chat.append({"role": "tool", "tool_call_id": item.call_id, "content": content})
    elif item.type == "message" and item.role != "assistant":
        require(item.role is not None, where, f"{where} has no role.")
        chat.append({"role": item.role, "content": _parts(item.content or "", where)})
    elif item.type == "function_call":
        called = {"name": item.name, "arguments": item.arguments}
        call = {"id": item.call_id, "function": called}
        _reply(chat, "reasoning_content", "content", "tool_calls").setdefault(
            "tool_calls", []
        ).append(call)
    elif item.type == "message":
        _reply(chat, "reasoning_content")["content"] = _parts(item.content or "", where)
    else:
        texts = item.content if isinstance(item.content, list) else []
        if text := "".join(part.text or "" for part in texts):
            _reply(chat)["reasoning_content"] = text


def _reply(chat: list[Json], *may_have: str) -> Json:
    """Return the last message if it is a reply that has no more than that, or a new one."""
    if not chat or chat[-1]["role"] != "assistant" or {*chat[-1]} - {"role", *may_have}:
        chat.append({"role": "assistant"})
    return chat[-1]


def _parts(content: str | list[_Part], where: str) -> str | list[Json]:
    if isinstance(content, str):
        return content
    parts: list[Json] = []
    for part in content:
        if part.type == "input_image":
            shown = {"url": part.image_url, "detail": part.detail}
            parts.append({"type": "image_url", "image_url": shown})
        else:
            problem = f"{where} has a part of type {part.type!r}: there are texts and input_image."
            is_text = part.type in ("input_text", "output_text", "text") and part.text is not None
            require(is_text, where, problem)
            parts.append({"type": "text", "text": part.text})
    return parts


@define(eq=False)
class ResponseAnswer:
    """An answer as a whole, or in events; see `rlc.service.inference.openai`."""

    id: str
    created: int
    generation: Generation
    request: ResponsesRequest
    _output: list[Json] = field(factory=list, init=False)  # items of a stream
    _open: Literal["reasoning", "message"] | None = field(default=None, init=False)
    _events: int = field(default=0, init=False)

    def full(self, replies: Sequence[FullReply]) -> Json:
        (reply,) = replies
        return self._response(self._items(reply), reply)

    def message(self, i: int, reply: FullReply) -> Message:  # noqa: ARG002
        chat: list[Json] = []
        for item in self._items(reply):
            _add(chat, _Item.model_validate(item), "output")
        return plain_message(chat[0], "output")

    def _items(self, reply: FullReply) -> list[Json]:
        items, end = list[Json](), reply.end
        assert end is not None
        if reply.reasoning:
            items.append(self._item("reasoning", 0, reply.reasoning))
        if reply.text or not (items or end.calls):
            items.append(self._item("message", len(items), reply.text))
        _cut(items, end)
        return [*items, *self._calls(len(items), end)]

    def first(self) -> list[Json]:
        begun = self._response([], None)
        return [
            self._event("created", response=begun),
            self._event("in_progress", response=begun),
        ]

    def step(self, step: Step) -> list[Json]:
        events: list[Json] = []
        for kind, text in (("reasoning", step.piece.reasoning), ("message", step.piece.text)):
            if text:
                events += [*self._begin(kind), self._delta(text)]
        if step.end is not None and not (self._output or step.end.calls):
            events += self._begin("message")
        if step.end is not None:
            _cut(self._output, step.end)
            events += self._close()
            for call in self._calls(len(self._output), step.end):
                events += self._called(call)
        return events

    def last(self, replies: Sequence[FullReply]) -> list[Json]:
        (reply,) = replies
        response = self._response(self._output, reply)
        return [self._event(response["status"], response=response)]

    def failed(self, message: str) -> Json:
        """Return the event of an error in a stream."""
        error = {"type": "error", "code": "server_error", "message": message, "param": None}
        return {**error, "sequence_number": self._events}

    def _event(self, name: str, /, **fields: Any) -> Json:
        self._events += 1
        return {"type": f"response.{name}", "sequence_number": self._events - 1, **fields}

    def _begin(self, kind: Any) -> list[Json]:
        if self._open == kind:
            return []
        events, at = self._close(), len(self._output)
        self._open = kind
        item = self._item(kind, at, "")
        self._output.append(item)
        (part,) = item["content"]
        begun = {**item, "status": "in_progress", "content": []}
        return [
            *events,
            self._event("output_item.added", output_index=at, item=begun),
            self._event("content_part.added", **self._place(), part=dict(part)),
        ]

    def _delta(self, text: str) -> Json:
        item = self._output[-1]
        item["content"][0]["text"] += text
        return self._of_part(item, "delta", delta=text)

    def _of_part(self, item: Json, name: str, **fields: Any) -> Json:
        kind, more = _TEXTS[item["type"]]
        return self._event(f"{kind}.{name}", **self._place(), **fields, **more)

    def _place(self) -> Json:
        """Return where the text of the last item stands."""
        at = len(self._output) - 1
        return {"item_id": self._output[at]["id"], "output_index": at, "content_index": 0}

    def _close(self) -> list[Json]:
        if self._open is None:
            return []
        self._open, item = None, self._output[-1]
        (part,) = item["content"]
        at = len(self._output) - 1
        return [
            self._of_part(item, "done", text=part["text"]),
            self._event("content_part.done", **self._place(), part=part),
            self._event("output_item.done", output_index=at, item=item),
        ]

    def _called(self, call: Json) -> list[Json]:
        at, arguments = len(self._output), call["arguments"]
        self._output.append(call)
        begun = {**call, "arguments": "", "status": "in_progress"}
        place = {"item_id": call["id"], "output_index": at}
        done = {"arguments": arguments, "name": call["name"]}
        return [
            self._event("output_item.added", output_index=at, item=begun),
            self._event("function_call_arguments.delta", **place, delta=arguments),
            self._event("function_call_arguments.done", **place, **done),
            self._event("output_item.done", output_index=at, item=call),
        ]

    def _item(self, kind: str, number: int, text: str) -> Json:
        own = f"{self.id.removeprefix('resp_')}_{number}"
        if kind == "reasoning":
            part: Json = {"type": "reasoning_text", "text": text}
            item: Json = {"id": f"rs_{own}", "type": "reasoning", "summary": []}
        else:
            part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
            item = {"id": f"msg_{own}", "type": "message", "role": "assistant"}
        return {**item, "status": "completed", "content": [part]}

    def _calls(self, first: int, end: End) -> list[Json]:
        own = self.id.removeprefix("resp_")
        return [
            {
                "id": f"fc_{own}_{number}",
                "type": "function_call",
                "call_id": call.id or f"call_{own}_{number}",
                "name": call.name,
                "arguments": call.arguments,
                "status": "completed",
            }
            for number, call in enumerate(end.calls, first)
        ]

    def _response(self, output: list[Json], reply: FullReply | None) -> Json:
        request = self.request
        is_cut = reply is not None and reply.end is not None and reply.end.reason == "length"
        done = "incomplete" if is_cut else "completed"
        wanted = None if request.text is None else request.text.format
        shown = {"type": "text"} if wanted is None else wanted.model_dump(by_alias=True)
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": "in_progress" if reply is None else done,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "metadata": request.metadata or {},
            "model": self.generation.model.name,
            "output": output,
            "parallel_tool_calls": request.parallel_tool_calls is not False,
            "previous_response_id": None,
            "store": False,
            **shown_sampling(self.generation.sampling),
            "text": {"format": shown},
            "tool_choice": request.tool_choice or "auto",
            "tools": [tool.model_dump(exclude={"defer_loading"}) for tool in request.tools or ()],
            "truncation": "disabled",
            "usage": None if reply is None else self._usage(reply),
            "user": request.user,
        }

    def _usage(self, reply: FullReply) -> Json:
        prompt, sampled = sum(map(len, self.generation.prompts)), len(reply.tokens)
        cached = {"cached_tokens": self.generation.cached_tokens, "cache_write_tokens": 0}
        return {
            "input_tokens": prompt,
            "input_tokens_details": cached,
            "output_tokens": sampled,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + sampled,
        }


def _cut(texts: list[Json], end: End) -> None:
    """Mark the last of the items of texts if the reply was cut off in it."""
    if end.reason == "length" and not end.calls:
        texts[-1]["status"] = "incomplete"


# Of events of the texts in items: their name, and what they have besides.
_TEXTS: dict[str, tuple[str, Json]] = {
    "reasoning": ("reasoning_text", {}),
    "message": ("output_text", {"logprobs": []}),
}
