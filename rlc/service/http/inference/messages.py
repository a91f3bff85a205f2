"""Messages of requests of both APIs."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any

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


_IMAGE = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,([A-Za-z0-9+/=\s]+)")


def image_part(url: Any, where: str) -> dict[str, Any]:
    """An image in a message, as renderers take it. Raise Refused (400) for one that is not in the
    request itself: what is elsewhere, on the network or in a file, is not fetched."""
    found = _IMAGE.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        said = f"{where} has an image that is no data: URL of a png, jpeg, webp or gif in base64; "
        raise Refused(400, f"{said}nothing is fetched from elsewhere.", param=where)
    try:
        b64decode(found[1])
    except ValueError as error:
        raise Refused(400, f"{where} has an image that is not base64.", param=where) from error
    return {"type": "image", "image": url}


def parts_of(message: Message) -> Sequence[dict[str, Any]]:
    """The parts of a message's content; none if it is only text."""
    content = message.get("content")
    return content if isinstance(content, list) else ()
