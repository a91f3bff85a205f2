"""Whether the arguments of a call fit a JSON schema, such as that of a tool that is ``strict``.

A call that does not fit is no call but text: nothing here can make a model sample one that fits.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlc.service.chats.errors import ChatError


def require_checkable(schema: Any) -> None:
    """Raise ChatError for what is no JSON schema (draft 2020-12), or refers to another document."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        said = f"a strict tool's schema is no JSON schema: {error.message}"
        raise ChatError(said, f"see {error.json_path} in it", part="tools") from error
    for target in _references(schema):
        if not target.startswith("#"):
            said = f"a strict tool's schema refers to {target!r}, which is not fetched"
            raise ChatError(said, "put it under `$defs`", part="tools")


def is_object(arguments: str) -> bool:
    """Return whether arguments are an object in JSON."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def fits(arguments: str, schema: Mapping[str, Any]) -> bool:
    """Return whether arguments, as JSON, fit a schema."""
    from jsonschema import Draft202012Validator
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    registry: Registry[Any] = Registry()  # which fetches nothing
    checker = Draft202012Validator(
        schema, registry=registry, format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    try:
        return bool(checker.is_valid(json.loads(arguments)))
    except (ValueError, RecursionError, Unresolvable):
        return False


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        own = schema.get("$ref")
        yield from [own] if isinstance(own, str) else []
    inner = schema.values() if isinstance(schema, dict) else schema
    for one in inner if isinstance(schema, dict | list) else ():
        yield from _references(one)
