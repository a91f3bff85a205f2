"""Models that answer inside of environments, and are not trained there: judges, opponents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen

from rlc.envs.base import EnvError
from rlc.plan.models import ModelState

Message = Mapping[str, Any]


@frozen
class Reply:
    """What a model answers: its text without any thinking, and why it ended (``"stop"``, or
    ``"length"`` for a reply that was cut off)."""

    text: str
    stop_reason: str


class Responder(Protocol):
    """A model that answers chats."""

    async def reply(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        temperature: float,
        key: Sequence[str | int],
    ) -> Reply:
        """Answer a chat, whose messages have a ``role`` and a ``content``.

        ``key`` names the random stream of the reply under the seed of the run: the same messages
        under the same key get the same reply. Raise ServiceError if the service does not answer,
        and EnvError if the chat cannot be shown to the model.
        """


Responders = Callable[[ModelState], Responder]


def no_responders(state: ModelState) -> Responder:
    """Make none. Raise EnvError."""
    raise EnvError(f"the model `{state.model.name}` cannot be asked here")
