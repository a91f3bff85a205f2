"""What OpenAI's and Anthropic's APIs share: bodies, the models that answer, and the answers.

Every field that is given has an effect, or is refused by its name.
"""

from __future__ import annotations

import asyncio
import json
import re
from array import array
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Protocol, TypeVar

from attrs import define, evolve, field, frozen
from pydantic import BaseModel, ConfigDict, ValidationError

from rlc.catalog import renderer_names
from rlc.chat import EnvError, fitting_renderer
from rlc.errors import Error
from rlc.service.chats.model import ChatModel, Generation, ReplyRequest
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import SampledCall
from rlc.service.http import RefusedRequest
from rlc.service.interface import SamplingRequest


class Strict(BaseModel):
    """A part of a body. It takes no unknown fields, and no text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())


class Body(Strict):
    """A body. ``without_effect`` are fields of the API that this server does not have, with the
    values at which they do nothing: only these are taken, and null."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {}


B = TypeVar("B", bound=Body)


def read_body(kind: type[B], content: bytes) -> B:
    """Read a body. Raise Refused (400) that names the field which is wrong."""
    try:
        given = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(400, "The body is no JSON.") from error
    if not isinstance(given, dict):
        raise RefusedRequest(400, "The body is no JSON object.")
    for name in kind.without_effect.keys() & given.keys():
        value = given.pop(name)
        if value is not None and value not in kind.without_effect[name]:
            raise RefusedRequest(
                400, f"This server does not support {name}: leave it out.", param=name
            )
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise RefusedRequest(400, f"This server has no parameter {where}.", param=where)
    said = f"{where}: {first['msg']}" if where else first["msg"]
    raise RefusedRequest(400, f"The request is not as it should be: {said}.", param=where or None)


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
                raise RefusedRequest(400, said, param="messages")
            message = {**message, "name": names[call_id]}
        named.append(message)
    return named


_IMAGE = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,([A-Za-z0-9+/=\s]+)")


def image_part(url: Any, where: str) -> dict[str, Any]:
    """An image in a message, as renderers take it. Raise Refused (400) for one that is not in the
    request itself: what is elsewhere, on the network or in a file, is not fetched."""
    found = _IMAGE.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        said = f"{where} has an image that is no data: URL of a png, jpeg, webp or gif in base64; "
        raise RefusedRequest(400, f"{said}nothing is fetched from elsewhere.", param=where)
    try:
        b64decode(found[1])
    except ValueError as error:
        raise RefusedRequest(
            400, f"{where} has an image that is not base64.", param=where
        ) from error
    return {"type": "image", "image": url}


def parts_of(message: Message) -> Sequence[dict[str, Any]]:
    """The parts of a message's content; none if it is only text."""
    content = message.get("content")
    return content if isinstance(content, list) else ()


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
