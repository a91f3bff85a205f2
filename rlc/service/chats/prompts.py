"""Messages to the tokens of a prompt, as the renderer of a model writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rlc.chat import Chunks, EnvError, opening, prompt_of
from rlc.errors import first_line
from rlc.service.chats.errors import ChatError, Part
from rlc.service.chats.schemas import require_checkable

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
        """As renderers take it."""
        said = {"name": self.name, "description": self.description}
        return {**said, "parameters": self.parameters}


def chat_prompt(
    renderer: Any, messages: Sequence[Message], tools: Sequence[Tool] = ()
) -> tuple[list[int], Chunks]:
    """Return the prompt after which the model answers, and what is not text among its tokens.

    Args:
        messages: plain data in OpenAI's form; see `rlc.chat.prompts`.

    Raises:
        ChatError: the model's format has no way to show tools, or such messages.
    """
    try:
        return prompt_of(renderer, opening(renderer, messages, [tool.shown() for tool in tools]))
    except EnvError as error:
        part: Part = "tools" if tools else "messages"
        raise ChatError(error.message, error.hint, part=part) from error
    except (*UNRENDERED, OSError) as error:  # OSError: an image that cannot be read
        said = f"the model's chat format cannot show these messages: {first_line(error)}"
        raise ChatError(said) from error
