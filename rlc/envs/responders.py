"""Models that answer inside of environments, and are not trained there: judges, opponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen

from rlc.envs.base import EnvError
from rlc.plan.environments import Asked, EndpointPlan

Message = Mapping[str, Any]


@frozen
class Question:
    """A chat to answer, whose messages have a ``role`` and a ``content``, and how to sample the
    reply. ``key`` names its random stream under the seed of the run: the same messages under the
    same key get the same reply."""

    messages: Sequence[Message]
    max_tokens: int
    temperature: float
    key: tuple[str | int, ...]


@frozen
class Reply:
    """What a model answers: its text without any thinking, and why it ended (``"stop"``, or
    ``"length"`` for a reply that was cut off)."""

    text: str
    stop_reason: str


class Responder(Protocol):
    """A model that answers chats."""

    async def reply(self, question: Question) -> Reply:
        """Answer a question. Raise ServiceError if the service does not answer, and EnvError if
        the chat cannot be shown to the model."""


class Responders(Protocol):
    """Makes responders."""

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        """The responder of a model or an endpoint. With ``most``, that many replies are asked for
        at once, and each is remembered for the rest of the run, also by later processes: the same
        question under the same key is asked once. ``timeout``: seconds for one reply."""


def no_responders(
    asked: Asked,
    most: int | None = None,  # noqa: ARG001
    timeout: float | None = None,  # noqa: ARG001
) -> Responder:
    """Make none. Raise EnvError."""
    name = asked.model if isinstance(asked, EndpointPlan) else asked.model.name
    raise EnvError(f"the model `{name}` cannot be asked here")
