"""Bodies and messages of requests of both APIs.

Every field that is given has an effect, or is refused by its name.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rlc.service.chats.prompts import Message
from rlc.service.http import RefusedRequest


class Strict(BaseModel):
    """A part of a body. It takes no unknown fields, and no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Body(Strict):
    """A body. ``without_effect`` are fields of the API that this server does not have, with the
    values at which they do nothing: only these are taken, and null."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {}


B = TypeVar("B", bound=Body)


def read_body(kind: type[B], content: bytes) -> B:
    """Read a body. Raise Refused (400) that names the field which is wrong."""
    try:
        given = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(400, "The body is no JSON.") from error
    if not isinstance(given, dict):
        raise RefusedRequest(400, "The body is no JSON object.")
    for name in kind.without_effect.keys() & given.keys():
        value = given.pop(name)
        if value is not None and value not in kind.without_effect[name]:
            raise RefusedRequest(
                400, f"This server does not support {name}: leave it out.", param=name
            )
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise RefusedRequest(400, f"This server has no parameter {where}.", param=where)
    said = f"{where}: {first['msg']}" if where else first["msg"]
    raise RefusedRequest(400, f"The request is not as it should be: {said}.", param=where or None)


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
                raise RefusedRequest(400, said, param="messages")
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
        raise RefusedRequest(400, f"{said}nothing is fetched from elsewhere.", param=where)
    try:
        b64decode(found[1])
    except ValueError as error:
        raise RefusedRequest(
            400, f"{where} has an image that is not base64.", param=where
        ) from error
    return {"type": "image", "image": url}


def parts_of(message: Message) -> Sequence[dict[str, Any]]:
    """The parts of a message's content; none if it is only text."""
    content = message.get("content")
    return content if isinstance(content, list) else ()
