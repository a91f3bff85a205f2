"""Bodies of requests: every field that is given has an effect, or is refused by its name."""

from __future__ import annotations

import json
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from rlc.service.http.refusals import Refused


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
        raise Refused(400, "The body is no JSON.") from error
    if not isinstance(given, dict):
        raise Refused(400, "The body is no JSON object.")
    for name in kind.without_effect.keys() & given.keys():
        value = given.pop(name)
        if value is not None and value not in kind.without_effect[name]:
            raise Refused(400, f"This server does not support {name}: leave it out.", param=name)
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise Refused(400, f"This server has no parameter {where}.", param=where)
    said = f"{where}: {first['msg']}" if where else first["msg"]
    raise Refused(400, f"The request is not as it should be: {said}.", param=where or None)
