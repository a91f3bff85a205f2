"""Chats as the tokens of a prompt: messages, tools, and what is wrong with either."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from attrs import frozen

from rlc.chat import Chunks, EnvError, opening, prompt_of
from rlc.errors import first_line

if TYPE_CHECKING:
    from tinker import types

Part = Literal["tools", "messages", "response_format"]


class ChatError(EnvError):
    """A chat that cannot be shown to a model, because of one of its parts."""

    def __init__(self, message: str, hint: str | None = None, *, part: Part = "messages") -> None:
        super().__init__(message, hint)
        self.part: Part = part


class TooLongError(EnvError):
    """A chat that exceeds the context of the model."""


class FormError(EnvError):
    """A reply does not have the form that its request asks for, however often it is sampled.
    ``response`` has the last replies; ``code`` is a word for programs."""

    def __init__(
        self, message: str, hint: str, *, code: str, response: types.SampleResponse
    ) -> None:
        super().__init__(message, hint)
        self.code = code
        self.response = response


def require_checkable(schema: Any, part: Part = "tools") -> None:
    """Raise ChatError for what is no JSON schema (draft 2020-12), or refers to another document."""
    whose = "a strict tool's schema" if part == "tools" else "the schema"
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        message = f"{whose} is no JSON schema: {error.message}"
        raise ChatError(message, f"see {error.json_path} in it", part=part) from error
    for target in _references(schema):
        if not target.startswith("#"):
            message = f"{whose} refers to {target!r}, which is not fetched"
            raise ChatError(message, "put it under `$defs`", part=part)


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
    if isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        yield schema["$ref"]
    inner = schema.values() if isinstance(schema, dict) else schema
    for one in inner if isinstance(schema, dict | list) else ():
        yield from _references(one)


Message = Mapping[str, Any]
# What renderers raise for conversations that their format does not know; their own errors derive
# from ValueError.
UNRENDERED = (AssertionError, LookupError, TypeError, ValueError)


@frozen
class Tool:
    """A tool that a model may call. A call whose arguments do not fit ``required`` is text."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    required: Mapping[str, Any] | None  # a JSON schema; None for any text at all

    def __attrs_post_init__(self) -> None:
        if self.required is not None:
            require_checkable(self.required)

    def shown(self) -> dict[str, Any]:
        """Return the tool as renderers take it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def chat_prompt(
    renderer: Any, messages: Sequence[Message], tools: Sequence[Tool] = ()
) -> tuple[list[int], Chunks]:
    """Return the prompt of messages in OpenAI's form (see `rlc.chat.prompts`), and what is not text
    among its tokens. Raise ChatError if the model's format cannot show the messages or tools."""
    try:
        return prompt_of(renderer, opening(renderer, messages, [tool.shown() for tool in tools]))
    except EnvError as error:
        part: Part = "tools" if tools else "messages"
        raise ChatError(error.message, error.hint, part=part) from error
    except (*UNRENDERED, OSError) as error:  # OSError: an image that cannot be read
        message = f"the model's chat format cannot show these messages: {first_line(error)}"
        raise ChatError(message) from error
