"""What a reply has to be: a call of a tool, one call at most, JSON that fits a schema.

A call begins with what the model's renderer writes before its arguments, which is put into the
prompt. The rest is checked when a reply is complete; one that does not fit is sampled again. Where
a service can mask tokens, only those are sampled that can still complete the form.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import frozen

from rlc.chat import ANY_QUESTION, EnvError, first_tokens, rendered
from rlc.service.chats.grammar import Choice, JsonGrammar, Part, State, after
from rlc.service.chats.prompts import (
    UNRENDERED,
    FormError,
    Message,
    Tool,
    fits,
    is_object,
    require_checkable,
)
from rlc.service.chats.replies import FullReply

if TYPE_CHECKING:
    from tinker import types

_Q = TypeVar("_Q", list[int], str)
_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}
_PROBE = '{"probe": 1}'  # arguments, by which those of any call are found


@frozen
class ReplyForm:
    """What a reply has to be. ``calls`` are the names of the tools of which it must call one;
    ``schema`` is that of its text, unless it calls a tool."""

    calls: tuple[str, ...] = ()
    one_call: bool = False
    schema: Mapping[str, Any] | None = None

    def __attrs_post_init__(self) -> None:
        if self.schema is not None:
            require_checkable(self.schema, "response_format")

    @property
    def is_free(self) -> bool:
        return not self.calls and self.schema is None

    def misfit(self, reply: FullReply) -> str | None:
        """Return what is wrong with a reply, after "the reply"; None if it has the form. Raise
        ChatError if that takes too long to find out."""
        calls = () if reply.end is None else reply.end.calls
        if self.calls and not calls:
            return "calls no tool"
        for call in calls if self.calls else ():
            if call.name not in self.calls:
                return f"calls {call.name}"
            if not is_object(call.arguments):
                return f"calls {call.name} without an object of arguments"
        schema = None if calls else self.schema
        if schema is not None and not fits(reply.text, schema, "response_format"):
            return "is no JSON that fits the schema"
        return None

    def kept(
        self,
        sequence: types.SampledSequence,
        reply: FullReply,
        read: Callable[[types.SampledSequence], FullReply],
    ) -> types.SampledSequence:
        """Return a sequence, which is a ``reply``, up to its first call if there may be but one."""

        def calls(count: int) -> int:
            end = read(first_tokens(sequence, count)).end
            return 0 if end is None else len(end.calls)

        if not self.one_call or reply.end is None or len(reply.end.calls) < 2:
            return sequence
        counts = range(1, len(sequence.tokens))
        return first_tokens(sequence, counts[bisect_left(counts, 1, key=calls)])

    def error(
        self, wrong: Mapping[int, str], tries: int, response: types.SampleResponse
    ) -> FormError:
        number, why = next(iter(wrong.items()))
        names = " or ".join(self.calls)
        asked = f"a call of {names}" if names else "a reply in JSON"
        again = f"it {why}, and was sampled {tries} time{'s' * (tries > 1)}"
        which = f" (choice {number})" if len(response.sequences) > 1 else ""
        return FormError(
            f"The model did not give {asked}: {again}{which}",
            "ask more clearly for it, give more max_tokens, or leave tool_choice or "
            "response_format out",
            code="tool_use_failed" if names else "json_validate_failed",
            response=response,
        )

    def shown(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages that tell the model of the schema, at the end of the system's."""
        if self.schema in (None, _ANY_OBJECT):
            return messages
        text = f"Reply with JSON that fits this schema:\n{json.dumps(self.schema)}"
        is_system = bool(messages) and messages[0]["role"] == "system"
        head, rest = (messages[0], messages[1:]) if is_system else ({}, messages)
        content = "\n\n".join(filter(None, [head.get("content"), text]))
        return [{**head, "role": "system", "content": content}, *rest]


FREE = ReplyForm()


@frozen(eq=False)
class BegunReply:
    """The beginning of a reply that is put into the prompt, the grammar of the rest, and the tokens
    that end it. Without a grammar the rest is not masked, nor after a first token of ``free``."""

    opening: tuple[int, ...] = ()
    rest: State | None = None
    tail: tuple[int, ...] = ()
    free: tuple[int, ...] = ()


def opened(form: ReplyForm, renderer: Any, tokenizer: Any, tools: Sequence[Tool]) -> BegunReply:
    """Return how a reply of a form begins and goes on."""
    ends = [stop for stop in renderer.get_stop_sequences() if isinstance(stop, int)]
    if form.calls:
        chosen = [tool for tool in tools if tool.name in form.calls]
        return _opened_call(chosen, renderer, tokenizer)
    if form.schema is None or not ends:
        return BegunReply()
    calls = _opened_call(tools, renderer, tokenizer).opening[:1] if tools else ()
    start: State = frozenset({(JsonGrammar(form.schema).start(), None)})
    return BegunReply((), start, tuple(ends[:1]), calls)


def _opened_call(tools: Sequence[Tool], renderer: Any, tokenizer: Any) -> BegunReply:
    try:
        asked: list[int] = renderer.build_generation_prompt([ANY_QUESTION]).to_ints()
    except (*UNRENDERED, EnvError):
        return BegunReply()
    both = _PROBE, "{}"
    written = [[_call(renderer, asked, tool.name, given) for given in both] for tool in tools]
    named = zip(tools, written, strict=True)
    if not all(tool.name in tokenizer.decode(whole) for tool, (whole, _) in named):
        return BegunReply()
    shared = written[0][0]
    for whole in chain.from_iterable(written):
        shared = shared_start(shared, whole)
    opening = tuple(shared)
    marks = marks_of(tokenizer)
    parts = list[Part]()
    for tool, (whole, _) in zip(tools, written, strict=True):
        tail = tuple(takewhile(marks.__contains__, reversed(whole)))[::-1]
        body = whole[: len(whole) - len(tail)]
        before, found, behind = tokenizer.decode(body).partition(_PROBE)
        if not found or not tail or marks.intersection(body[len(opening) :]):
            return BegunReply(opening)
        parts.append((before, JsonGrammar(tool.parameters or _ANY_OBJECT).start(), behind))
    state: State = frozenset({(Choice(parts), None)})
    for one in tokenizer.decode(opening):
        state = after(state, one)
    return BegunReply(opening, state, tail)


def marks_of(tokenizer: Any) -> frozenset[int]:
    """Return the tokens that are no text: ends, and marks around turns and calls."""
    added, special = tokenizer.get_added_vocab(), tokenizer.all_special_ids
    return frozenset(i for text, i in added.items() if text.startswith("<") or i in special)


def shared_start(one: _Q, other: _Q) -> _Q:
    """Return what two sequences begin with."""
    differ = (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return one[: next(differ, min(len(one), len(other)))]


def _call(renderer: Any, asked: list[int], name: str, arguments: str) -> list[int]:
    """Return a reply that calls a tool as the renderer writes it behind the prompt ``asked``;
    nothing if it cannot."""
    function = {"name": name, "arguments": arguments}
    call = {"id": "call", "type": "function", "function": function}
    reply = rendered({"role": "assistant", "content": "", "tool_calls": [call]})
    try:
        whole: list[int] = renderer.build_supervised_example([ANY_QUESTION, reply])[0].to_ints()
    except (*UNRENDERED, EnvError):
        return []
    return whole[len(asked) :] if whole[: len(asked)] == asked else []
