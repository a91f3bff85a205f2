"""An endpoint: models that answer OpenAI's and Anthropic's requests, who asks them, and what was
answered, to the token; a file can record it.
"""

from __future__ import annotations

import asyncio
import json
from array import array
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, Literal, Protocol

from attrs import define, evolve, field, frozen

from rlc.catalog import renderer_names
from rlc.chat import EnvError, fitting_renderer
from rlc.errors import Error
from rlc.service.chats.model import ChatModel, Generation, ReplyRequest
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import SampledCall
from rlc.service.http import RefusedRequest
from rlc.service.interface import SamplingRequest

_MOST_AT_ONCE = 4_096  # samples under way
_MOST_KEPT = 8 * 2**20  # tokens in the book, of prompts and replies: about 100 MB


@frozen
class Caller:
    """Who has sent a request: the key that it carries, and the session that its path names after
    ``/s/``; None for what it does not have."""

    key: str | None
    session: str | None


class Models(Protocol):
    """The models of an endpoint by their names."""

    def names(self) -> Mapping[str, float]:
        """The names of all models, and when they were made (seconds since 1970, 0 if unknown)."""

    async def find(self, name: str, caller: Caller) -> ChatModel:
        """Return the model of a request, which is asked first of all. Raise Refused: (404) there is
        none of the name, (401) the caller may not ask."""


@frozen
class Choice:
    """A sampled reply, as it was sampled and as it was answered.

    Attributes:
        message: the reply as it stands among the messages of a later request, if the client sends
            it back as it got it; for a text that goes on from a prompt, the text as a message.
    """

    token_ids: array[int]
    logprobs: array[float]
    stop_reason: Literal["stop", "length"]
    text: str
    reasoning: str
    calls: tuple[SampledCall, ...]
    message: Message


@frozen
class AnsweredRequest:
    """A request that was answered: what a training program needs of it. Choice ``i`` is sample
    ``i % sampling.n`` of prompt ``i // sampling.n``."""

    id: str
    caller: Caller
    model: str
    path: str  # chat/completions, completions or messages
    prompts: tuple[array[int], ...]
    choices: tuple[Choice, ...]
    sampling: SamplingRequest
    messages: Sequence[Message] | None  # None for a text
    tools: Sequence[Tool]
    user: str | None
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return sum(map(len, self.prompts)) + sum(len(choice.token_ids) for choice in self.choices)


Observer = Callable[[AnsweredRequest], None]


@define(eq=False)
class ModelEndpoint:
    """The state of the routes of all APIs. ``answered`` is called with each request that was
    answered, in the event loop, before its client has the last of the answer."""

    models: Models
    answered: Observer | None = None
    _renderers: dict[tuple[str, str], Any] = field(factory=dict, init=False)
    _book: OrderedDict[str, AnsweredRequest] = field(factory=OrderedDict, init=False)
    _kept: int = field(default=0, init=False)  # tokens in the book
    _under_way: int = field(default=0, init=False)

    async def chat_model(self, name: str, caller: Caller, renderer: str | None) -> ChatModel:
        """Return a model that chats, with its own renderer or the cookbook's of another name. Raise
        Refused if there is none, or the renderer does not fit the model."""
        model = await self.models.find(name, caller)
        if renderer is None:
            if model.renderer is None:
                said = f"{model.name} cannot chat: {model.no_renderer}. Use /v1/completions, or "
                raise RefusedRequest(400, f"{said}name a `renderer`.", param="renderer")
            return model
        if renderer not in renderer_names():
            known = ", ".join(renderer_names())
            raise RefusedRequest(
                400, f"There is no renderer {renderer!r}: there are {known}.", param="renderer"
            )
        key = model.base, renderer
        if key not in self._renderers:
            try:
                self._renderers[key] = fitting_renderer(model.tokenizer, renderer)
            except EnvError as error:
                raise RefusedRequest(400, f"{model.base}: {error}.", param="renderer") from error
        return evolve(model, renderer=self._renderers[key])

    def start(self, model: ChatModel, request: ReplyRequest) -> Generation:
        """Begin to sample. Raise TooLongError if a prompt is too long, and Refused (429) if too
        many samples would be under way."""
        if self._under_way + request.count > _MOST_AT_ONCE:
            raise RefusedRequest(
                429, f"More than {_MOST_AT_ONCE:,} samples would be under way at once."
            )
        generation = model.start(request)
        self._under_way += request.count
        for reply in generation.replies:
            reply.add_done_callback(partial(self._leave, request.sampling.n))
        return generation

    def _leave(self, count: int, _: asyncio.Future[Any]) -> None:
        self._under_way -= count

    def keep(self, answered: AnsweredRequest) -> None:
        """Keep a request, for which the oldest make room, and tell of it."""
        self._book[answered.id] = answered
        self._kept += answered.size
        while self._kept > _MOST_KEPT:
            _, oldest = self._book.popitem(last=False)
            self._kept -= oldest.size
        if self.answered is not None:
            self.answered(answered)

    def find(self, request_id: str, caller: Caller) -> AnsweredRequest:
        """Return a request that was answered. Raise Refused (404) if it is not known any more."""
        found = self._book.get(request_id)
        if found is None or found.caller.session != caller.session:
            raise RefusedRequest(404, f"There is no answered request {request_id} here.")
        return found


@define(eq=False)
class Recorder:
    """Adds a line (JSON) to a file for each request, with its exact tokens and their logprobs.
    Keys of callers are not written. Raise Error if the file cannot be written."""

    path: Path
    _file: IO[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise Error(f"cannot write {self.path}: {error}") from error

    def __call__(self, answered: AnsweredRequest) -> None:
        """Write a request."""
        sampling = answered.sampling
        row = {
            "id": answered.id,
            "model": answered.model,
            "path": answered.path,
            "session": answered.caller.session,
            "messages": answered.messages,
            "tools": [tool.shown() for tool in answered.tools],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
            "prompts": [list(prompt) for prompt in answered.prompts],
            "choices": [
                {
                    "token_ids": list(choice.token_ids),
                    "logprobs": list(choice.logprobs),
                    "stop_reason": choice.stop_reason,
                    "message": choice.message,
                }
                for choice in answered.choices
            ],
            "user": answered.user,
            "metadata": dict(answered.metadata),
        }
        self._file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
