"""Models that answer inside of environments, and are not trained there: judges, opponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from attrs import frozen

from rlc.chat import Chunks, EnvError
from rlc.plan import Asked, EndpointPlan, ModelState, Sampling

Message = Mapping[str, Any]


@frozen
class ModelRequest:
    """A chat to answer, whose messages have a ``role`` and a ``content``. ``key`` names its random
    stream under the seed of the run: the same messages under the same key get the same reply."""

    messages: Sequence[Message]
    sampling: Sampling
    key: tuple[str | int, ...]


@frozen
class ModelReply:
    """What a model answers: its text without any thinking, and why it ended (``"stop"``, or
    ``"length"`` for a reply that was cut off)."""

    text: str
    stop_reason: str


class Responder(Protocol):
    """A model that answers chats."""

    async def reply(self, question: ModelRequest) -> ModelReply:
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

    async def logprob(
        self, model: ModelState, tokens: Sequence[int], chunks: Chunks, said: Sequence[int]
    ) -> float:
        """Return the logprob, in nats, of those tokens of a sequence that are at the places
        ``said``, under a model. Remembered for the rest of the run, as replies are."""


class NoResponders:
    """Makes none, and reads nothing."""

    def __call__(
        self,
        asked: Asked,
        most: int | None = None,  # noqa: ARG002
        timeout: float | None = None,  # noqa: ARG002
    ) -> Responder:
        """Raise EnvError."""
        name = asked.model if isinstance(asked, EndpointPlan) else asked.model.name
        raise EnvError(f"the model `{name}` cannot be asked here")

    async def logprob(
        self,
        model: ModelState,
        tokens: Sequence[int],  # noqa: ARG002
        chunks: Chunks,  # noqa: ARG002
        said: Sequence[int],  # noqa: ARG002
    ) -> float:
        """Raise EnvError."""
        raise EnvError(f"the model `{model.model.name}` cannot be asked here")


no_responders = NoResponders()
