"""Messages of requests of both APIs."""

from __future__ import annotations

from collections.abc import Sequence

from rlc.service.chats.prompts import Message
from rlc.service.http.refusals import Refused


def name_results(messages: Sequence[Message]) -> list[Message]:
    """Messages in which each result of a tool names the tool that it is of. Raise Refused (400)
    for a result whose call is not in the messages before it."""
    names: dict[str, str] = {}
    named: list[Message] = []
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            if (call_id := message.get("tool_call_id")) not in names:
                said = f"messages[{i}] is the result of {call_id!r}, which no message before calls."
                raise Refused(400, said, param="messages")
            message = {**message, "name": names[call_id]}
        named.append(message)
    return named
