"""Chat messages in rows of data, in OpenAI's form or ShareGPT's, and the one form in which the rest
of rlc sees them. These functions are pure, so that `rlc check` and a run judge a row alike."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rlc.data.errors import DataError

Message = dict[str, Any]

ROLES = ("system", "user", "assistant", "tool")

# What other formats call the roles.
_SHAREGPT_ROLES = {
    **{role: role for role in ROLES},
    "human": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "function_call": "assistant",
    "function_response": "tool",
    "observation": "tool",
}
_MEANT = {
    **_SHAREGPT_ROLES,
    "developer": "system",
    **dict.fromkeys(("model", "bot", "ai"), "assistant"),
    "function": "tool",
}
MARKS = ("train", "trainable", "weight")  # which messages are trained on, message by message
_REASONING = ("reasoning_content", "reasoning", "thinking")
_TURN = re.compile(r"(?:^|\n\n)(Human|Assistant):")
_TEXT_PARTS = ("text", "input_text", "output_text")


class MessageError(DataError):
    """A row whose messages cannot be used."""


def read_messages(given: Any) -> tuple[list[Message], list[bool | None]]:
    """Return the messages of a chat, and of each whether it is marked as trained on."""
    if not isinstance(given, list) or not given:
        raise MessageError(f"a chat is a list of messages, and this is {_kind(given)}")
    messages, marks = list[Message](), list[bool | None]()
    for number, item in enumerate(given, start=1):
        if not isinstance(item, Mapping):
            raise MessageError(f"message {number} is {_kind(item)}; it is an object with a `role`")
        message = {name: value for name, value in item.items() if value is not None}
        if "from" in message and "role" not in message:
            message = _from_sharegpt(message, number)
        role = message.get("role")
        if role not in ROLES:
            known = ", ".join(f"`{name}`" for name in ROLES)
            meant = _MEANT.get(str(role).lower())
            advice = f"write `{meant}`" if meant else f"known are {known}"
            what = f"has the role {role!r}" if role else "has no `role`"
            raise MessageError(f"message {number} {what}", advice)
        where = f"message {number} ({role})"
        messages.append(read_message(message, where))
        marks.append(_mark(message, where))
        _require_order(messages, where)
    return messages, marks


def transcript(text: str) -> list[Message] | None:
    """Return the messages of a text in the form of HH-RLHF; None for others."""
    head, *parts = _TURN.split(text)
    if head.strip() or not parts:
        return None
    turns = zip(parts[::2], parts[1::2], strict=True)
    roles = {"Human": "user", "Assistant": "assistant"}
    return [{"role": roles[speaker], "content": said.strip()} for speaker, said in turns]


def _from_sharegpt(message: Message, number: int) -> Message:
    """Return a message of ShareGPT in the common form; a call is JSON text there."""
    sender = str(message["from"])
    role = _SHAREGPT_ROLES.get(sender, sender)
    kept = {name: value for name, value in message.items() if name not in ("from", "value")}
    if sender != "function_call":
        return {"role": role, "content": message.get("value"), **kept}
    call = read_json(str(message.get("value")), f"the call of message {number}")
    return {"role": role, "tool_calls": call if isinstance(call, list) else [call], **kept}


def read_message(message: Message, where: str) -> Message:
    role = message["role"]
    made: Message = {"role": role, "content": _content(message.get("content"), where)}
    if message.get("function_call"):
        what = f"{where} has a `function_call`, the old form of calls"
        raise MessageError(what, "write `tool_calls`")
    reasoning = next((message[name] for name in _REASONING if message.get(name)), None)
    if reasoning is not None:
        if role != "assistant" or not isinstance(reasoning, str):
            raise MessageError(f"{where}: reasoning is text of the assistant")
        given = made["content"]
        parts = [text_part(given)] if isinstance(given, str) else given
        made["content"] = [{"type": "thinking", "thinking": reasoning}, *parts]
    if calls := message.get("tool_calls"):
        if role != "assistant":
            raise MessageError(f"{where} has `tool_calls`; only the assistant calls tools")
        if not isinstance(calls, list):
            raise MessageError(f"{where}: `tool_calls` is {_kind(calls)}; it is a list of calls")
        made["tool_calls"] = [_call(call, where) for call in calls]
    said = made["content"]
    empty = not said.strip() if isinstance(said, str) else not said
    if empty and not calls and role in ("user", "assistant"):
        raise MessageError(f"{where} is empty")
    for name in ("name", "tool_call_id"):
        if name in message:
            made[name] = str(message[name])
    return made


def _content(content: Any, where: str) -> str | list[dict[str, str]]:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        raise MessageError(f"{where}: its content is {_kind(content)}, not text or a list of parts")
    parts = [_part(part, where) for part in content]
    if all(part["type"] == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts


def _part(part: Any, where: str) -> dict[str, str]:
    if isinstance(part, str):
        return text_part(part)
    if not isinstance(part, Mapping):
        raise MessageError(f"{where}: a part of its content is {_kind(part)}, not an object")
    kind = part.get("type")
    if kind in _TEXT_PARTS:
        name, value = "text", part.get("text")
    elif kind in ("thinking", "reasoning"):
        name, value = "thinking", part.get("thinking", part.get("text"))
    elif kind in ("image", "image_url"):
        name, value = "image", part.get("image_url") or part.get("image")
        value = value.get("url") if isinstance(value, Mapping) else value
    else:
        known = "`text`, `thinking`, `image_url`"
        what = f"{where}: a part of its content has the type {kind!r}; known are {known}"
        raise MessageError(what)
    if not isinstance(value, str):
        raise MessageError(f"{where}: the {name} of a part is {_kind(value)}, not text")
    return {"type": name, name: value}


def _call(call: Any, where: str) -> Mapping[str, Any]:
    if (function := _function(call)) is None:
        what = f"{where}: a call is an object with a `function`, which has a `name` and `arguments`"
        raise MessageError(what)
    name, given = function["name"], function.get("arguments") or "{}"
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    if not isinstance(read_json(text, f"{where}: `arguments` of `{name}`"), dict):
        raise MessageError(f"{where}: `arguments` of `{name}` is {text[:60]}, not an object")
    number = call.get("id")
    made = {"name": name, "arguments": text}
    return {"type": "function", "id": None if number is None else str(number), "function": made}


def _function(given: Any) -> Mapping[str, Any] | None:
    function = given.get("function", given) if isinstance(given, Mapping) else None
    named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
    return function if named else None


def _tool(tool: Any, number: int) -> Mapping[str, Any]:
    if (function := _function(tool)) is None:
        raise MessageError(f"tool {number} is no function with a `name`")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(parameters, Mapping):
        raise MessageError(f"tool {number}: `parameters` is {_kind(parameters)}, not a JSON schema")
    description = function.get("description") or ""
    return {**function, "description": str(description), "parameters": parameters}


def _mark(message: Message, where: str) -> bool | None:
    """Return whether a message is marked as trained on; None if it has no mark."""
    given = {name: message[name] for name in MARKS if name in message}
    if not given:
        return None
    if len(given) > 1:
        raise MessageError(f"{where} says twice whether it is trained on: {', '.join(given)}")
    ((name, value),) = given.items()
    if value not in (0, 1) or (name != "weight" and not isinstance(value, bool)):
        allowed = "0 or 1" if name == "weight" else "true or false"
        raise MessageError(f"{where}: `{name}` is {value!r}; it is {allowed}")
    if value and message["role"] != "assistant":
        raise MessageError(f"{where} is marked with `{name}`; only the assistant's are trained on")
    return bool(value)


def _require_order(messages: Sequence[Message], where: str) -> None:
    *before, last = messages
    if last["role"] == "system" and before:
        raise MessageError(f"{where}: a system message comes first")
    if last["role"] != "tool":
        return
    if not before or before[-1]["role"] not in ("assistant", "tool"):
        what = f"{where}: a tool's result comes without a call of the assistant before it"
        raise MessageError(what)
    called = [call["id"] for message in before for call in message.get("tool_calls", ())]
    answered = last.get("tool_call_id")
    if answered is not None and None not in called and called and answered not in called:
        raise MessageError(f"{where} answers the call {answered!r}, which was not made")


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def read_json(text: str, what: str) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise MessageError(f"{what}: this is no JSON: {text[:60]!r}") from error


def read_tools(value: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the tools of a chat: OpenAI's form, bare functions, or either as JSON text."""
    if isinstance(value, str) and value.strip():
        value = read_json(value, "`tools`")
    if not value:
        return ()
    if not isinstance(value, list):
        raise MessageError(f"`tools` is {_kind(value)}; it is a list of functions")
    return tuple(_tool(tool, number) for number, tool in enumerate(value, start=1))


def _kind(value: Any) -> str:
    match value:
        case None:
            return "empty"
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return f"the number {value}"
        case str():
            return "text"
        case Mapping():
            return "an object"
        case []:
            return "an empty list"
        case list():
            inside = {
                _kind(item) if not isinstance(item, int | float) else "numbers" for item in value
            }
            return f"a list of {inside.pop()}" if len(inside) == 1 else "a list of several kinds"
        case _:
            return f"a {type(value).__name__}"
