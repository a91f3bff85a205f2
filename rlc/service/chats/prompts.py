"""Chats as the tokens of a prompt: messages, tools, and what is wrong with either."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from functools import cache, partial
from time import thread_time
from typing import TYPE_CHECKING, Any, Literal

from attrs import frozen

from rlc.chat import (
    ChatFormat,
    ChatHistory,
    EnvError,
    TranscriptPrompt,
    TranscriptTree,
    conversation,
)
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
    """Raise ChatError for what is no JSON schema (draft 2020-12), or cannot be checked: references
    to other documents, patterns that cannot be read, patterns of names."""
    whose = "a strict tool's schema" if part == "tools" else "the schema"
    import regex
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        message = f"{whose} is no JSON schema: {error.message}"
        raise ChatError(message, f"see {error.json_path} in it", part=part) from error
    for key, value in _entries(schema):
        if key == "$ref" and isinstance(value, str) and not value.startswith("#"):
            message = f"{whose} refers to {value!r}, which is not fetched"
            raise ChatError(message, "put it under `$defs`", part=part)
        if key == "patternProperties":
            message = f"{whose} has patternProperties, which are not checked"
            raise ChatError(message, "name its properties, or use `propertyNames`", part=part)
        if key == "pattern" and isinstance(value, str):
            try:
                regex.compile(value)
            except regex.error as error:
                message = f"{whose} has a pattern that cannot be read, {value!r}: {error}"
                raise ChatError(message, part=part) from error


def is_object(arguments: str) -> bool:
    """Return whether arguments are an object in JSON."""
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


# Of processor time for a check: choices within choices can have any number of ways to fit.
_MOST_SECONDS = 0.5
_until: ContextVar[float] = ContextVar("_until")


def fits(arguments: str, schema: Mapping[str, Any], part: Part = "tools") -> bool:
    """Return whether arguments, as JSON, fit a schema. Raise ChatError if that takes too long."""
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    checker = _checker()
    registry: Registry[Any] = Registry()  # which fetches nothing
    made = checker(_of_one_draft(schema), registry=registry, format_checker=checker.FORMAT_CHECKER)
    _until.set(thread_time() + _MOST_SECONDS)
    try:
        return bool(made.is_valid(json.loads(arguments)))
    except TimeoutError as error:
        message = "the reply cannot be checked in time: its schema has too many ways to fit"
        raise ChatError(message, "give it fewer choices, or simpler patterns", part=part) from error
    except (ValueError, RecursionError, Unresolvable):
        return False


@cache
def _checker() -> Any:
    """Return a class of validators that raise TimeoutError when their time is over."""
    import regex
    from jsonschema import Draft202012Validator, ValidationError, validators

    def timed(check: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
        def checked(*given: Any) -> Iterator[Any]:
            if thread_time() > _until.get():
                raise TimeoutError
            yield from check(*given) or ()

        return checked

    def pattern(validator: Any, wanted: str, text: Any, schema: Any) -> Iterator[Any]:  # noqa: ARG001
        left = 4 * (_until.get() - thread_time())  # on a busy machine; `re` knows no limit
        is_text = validator.is_type(text, "string")
        if is_text and not regex.search(wanted, text, timeout=max(left, 0.001), concurrent=True):
            yield ValidationError(f"does not match {wanted!r}")

    known = {**Draft202012Validator.VALIDATORS, "pattern": pattern}
    return validators.extend(Draft202012Validator, {k: timed(v) for k, v in known.items()})


def _of_one_draft(schema: Any) -> Any:
    """Return a schema that chooses no other validator for its parts."""
    if isinstance(schema, list):
        return [_of_one_draft(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    chosen = {"$schema"} if isinstance(schema.get("$schema"), str) else set()
    return {key: _of_one_draft(value) for key, value in schema.items() if key not in chosen}


def _entries(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, dict):
        yield from schema.items()
    inner = schema.values() if isinstance(schema, dict) else schema
    for one in inner if isinstance(schema, dict | list) else ():
        yield from _entries(one)


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


_KEPT_TOKENS = 2_000_000  # of answers that a served model remembers


def remembering(renderer: Any) -> TranscriptTree:
    """Return a memory of what is asked and answered, in which turns go on with the tokens that were
    sampled."""
    return TranscriptTree(partial(ChatHistory, ChatFormat(renderer), whole=True), _KEPT_TOKENS)


def chat_prompt(
    chats: TranscriptTree, messages: Sequence[Message], tools: Sequence[Tool] = ()
) -> TranscriptPrompt:
    """Return the prompt of messages in OpenAI's form (see `rlc.chat.prompts`). Raise ChatError if
    the model's format cannot show the messages or tools."""
    try:
        return chats.write(conversation(messages, [tool.shown() for tool in tools]).messages)
    except EnvError as error:
        part: Part = "tools" if tools else "messages"
        raise ChatError(error.message, error.hint, part=part) from error
    except (*UNRENDERED, OSError) as error:  # OSError: an image that cannot be read
        message = f"the model's chat format cannot show these messages: {first_line(error)}"
        raise ChatError(message) from error
