"""Prompts of an environment that gives the whole conversation each time it asks for a reply."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlc.envs.base import Action, Observation
from rlc.envs.chunks import Chunks
from rlc.envs.inverted.conversations import Plain, is_same, spoken
from rlc.envs.tool_chat import ToolChatHistory, tool_chat_history


class WholeChatHistory:
    """The prompt side of one episode.

    A conversation that begins with the last one and the reply to it extends the sampled tokens, if
    the renderer can. One that was edited is written anew: that turn is a sequence of its own.
    """

    def __init__(self, new_chat: Callable[[], ToolChatHistory]) -> None:
        self._new_chat = new_chat
        self._chat = new_chat()
        self._said: list[Plain] = []

    @property
    def stop(self) -> list[int] | list[str] | None:
        return self._chat.stop

    @property
    def chunks(self) -> Chunks:
        return self._chat.chunks

    def observe(self, observation: Observation) -> list[int]:
        """Return the tokens of the whole next prompt. Raise EnvError for tools that the renderer
        cannot show."""
        whole, known = [dict(message) for message in observation.messages], self._said
        self._said = whole
        if known and len(known) < len(whole) and all(map(is_same, known, whole)):
            later = tuple(whole[len(known) :])
            return self._chat.observe(Observation("", messages=later))
        self._chat = self._new_chat()
        return self._chat.observe(Observation("", messages=tuple(whole)))

    def reply(self, tokens: list[int]) -> Action:
        """Record the sampled tokens; return the action for the environment."""
        action = self._chat.reply(tokens)
        self._said = [*self._said, spoken(action, 0)]
        return action


def whole_chat_history(
    tokenizer: Any, renderer: str, **begins: str
) -> Callable[[], WholeChatHistory]:
    """Return a factory of such prompts with a renderer of tinker-cookbook; ``begins`` as for
    :class:`rlc.envs.tool_chat.ToolChatHistory`. Raise EnvError if that does not fit the
    tokenizer."""
    new_chat = tool_chat_history(tokenizer, renderer, **begins)
    return lambda: WholeChatHistory(new_chat)
