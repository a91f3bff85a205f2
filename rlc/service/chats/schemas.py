"""Whether the arguments of a call fit a JSON schema, such as that of a tool that is ``strict``.

A call that does not fit is no call but text: nothing here can make a model sample one that fits.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlc.service.chats.errors import ChatError

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
    "null": type(None),
}
_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": operator.ge,
    "maximum": operator.le,
    "exclusiveMinimum": operator.gt,
    "exclusiveMaximum": operator.lt,
}
_CHECKED = {"type", "enum", "const", "anyOf", "properties", "required", "additionalProperties"}
_CHECKED |= {"items", "pattern", "$ref", *_BOUNDS}
_CHECKED |= {"minItems", "maxItems", "minLength", "maxLength"}
_SAID = {"description", "title", "default", "examples", "$defs", "$schema"}


def require_checkable(schema: Any) -> None:
    """Raise ChatError for a schema with a keyword that :func:`fits` does not know."""
    if not isinstance(schema, dict):
        return
    for name, value in schema.items():
        if name in ("properties", "$defs"):
            for inner in value.values() if isinstance(value, dict) else ():
                require_checkable(inner)
        elif name == "anyOf" and isinstance(value, list):
            for inner in value:
                require_checkable(inner)
        elif name in ("items", "additionalProperties"):
            require_checkable(value)
        elif name not in _CHECKED | _SAID:
            said = f"a strict tool's schema has {name!r}, which is not checked here"
            raise ChatError(said, "leave it out, or `strict`", part="tools")


def fits(arguments: str, schema: Mapping[str, Any]) -> bool:
    """Whether arguments, as JSON, fit a schema."""
    try:
        return _fits(json.loads(arguments), schema, schema)
    except (ValueError, RecursionError, TypeError, LookupError):  # of arguments or of the schema
        return False


def _fits(value: Any, schema: Any, root: Mapping[str, Any]) -> bool:
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        *_, name = str(schema["$ref"]).split("/")
        return _fits(value, root["$defs"][name], root)
    types: Sequence[str] = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(_is(value, name) for name in types):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "anyOf" in schema and not any(_fits(value, one, root) for one in schema["anyOf"]):
        return False
    if isinstance(value, dict) and not _object_fits(value, schema, root):
        return False
    if isinstance(value, list) and not all(
        _fits(item, schema.get("items", True), root) for item in value
    ):
        return False
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if _is(value, "number"):
        return all(holds(value, schema[name]) for name, holds in _BOUNDS.items() if name in schema)
    if isinstance(value, (list, str)):
        kind = "Items" if isinstance(value, list) else "Length"
        most = int(schema.get(f"max{kind}", len(value)))
        return int(schema.get(f"min{kind}", 0)) <= len(value) <= most
    return True


def _object_fits(value: Mapping[str, Any], schema: Any, root: Mapping[str, Any]) -> bool:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    return all(name in value for name in schema.get("required", ())) and all(
        _fits(inner, known.get(name, others), root) for name, inner in value.items()
    )


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, _TYPES[name])
