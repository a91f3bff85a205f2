"""Messages to the tokens of a prompt, as the renderer of a model writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen
from tinker_cookbook.exceptions import RendererError

from rlc.envs.base import EnvError
from rlc.envs.tool_chat import opening, prompt_of
from rlc.errors import first_line
from rlc.service.http.inference.schemas import require_checkable
from rlc.service.http.refusals import Refused

Message = Mapping[str, Any]
# What renderers raise for conversations that their format does not know.
UNRENDERED = (RendererError, AssertionError, LookupError, TypeError, ValueError)


@frozen
class Tool:
    """A tool that a model may call. A call whose arguments do not fit ``required`` is text."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    required: Mapping[str, Any] | None  # a JSON schema; None for any text at all

    def __attrs_post_init__(self) -> None:
        require_checkable(self.required, "tools")

    def shown(self) -> dict[str, Any]:
        """As renderers take it."""
        said = {"name": self.name, "description": self.description}
        return {**said, "parameters": self.parameters}


def chat_prompt(renderer: Any, messages: Sequence[Message], tools: Sequence[Tool]) -> list[int]:
    """Return the prompt after which the model answers.

    Args:
        messages: plain data in OpenAI's form; see `rlc.envs.tool_chat`.

    Raises:
        Refused: (400) the model's format has no way to show tools, or such messages.
    """
    try:
        shown = [tool.shown() for tool in tools]
        return prompt_of(renderer, opening(renderer, messages, shown))[0]
    except EnvError as error:
        why = "tools" if tools else "messages"
        raise Refused(400, f"{str(error).capitalize()}.", param=why) from error
    except UNRENDERED as error:
        said = f"The model's chat format cannot show these messages: {first_line(error)}"
        raise Refused(400, said, param="messages") from error


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
