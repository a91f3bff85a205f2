"""What an environment that owns its loop says and hears: messages in OpenAI's form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from rlc.envs.base import Action, EnvError, Observation
from rlc.envs.tool_chat import calls_of, conversation, readable, text_of

Plain = dict[str, Any]


def asked(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Observation:
    """A whole conversation that a reply is asked for, with the tools that may be called. Its text
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


def _part(part: Mapping[str, Any]) -> Plain:
    if part.get("type") == "text":
        return {"type": "text", "text": part["text"]}
    if part.get("type") == "image_url":
        source = part["image_url"]
        url = source if isinstance(source, str) else source["url"]
        if url.startswith("data:"):
            return {"type": "image", "image": url}
        raise EnvError("the environment shows an image by its address; only data URIs can be read")
    raise EnvError(f"the environment shows a part of the type {part.get('type')}")


def spoken(action: Action, turn: int) -> Plain:
    """A reply as a message. Calls without an id get one that no other turn has; those that could
    not be parsed stand in the text as they were sampled."""
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


def is_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two messages show a model the same."""
    return shown(one) == shown(other)


def shown(message: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a message shows a model: the ids of calls do not matter, nor does thinking that was left
    out, how the arguments of a call are written, or space around a reply."""
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
    return message.get("role"), content, calls, message.get("tools")
