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
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Protocol, TypeVar

from attrs import define, evolve, field, frozen
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from rlc.catalog import renderer_names
from rlc.chat import EnvError, fitting_renderer
from rlc.errors import Error
from rlc.service.chats.model import ChatModel, Generation, ReplyRequest
from rlc.service.chats.prompts import Message, Tool
from rlc.service.chats.replies import SampledCall
from rlc.service.http import RefusedRequest
from rlc.service.interface import SamplingRequest


class Strict(BaseModel):
    """A part of a body, without unknown fields, and without text for a number."""

    model_config = ConfigDict(extra="forbid", strict=True, protected_namespaces=())

    @model_validator(mode="before")
    @classmethod
    def _interrupted(cls, given: Any) -> Any:
        """Do nothing: while pydantic reads many parts of a body, other threads only run when it
        calls Python in between."""
        return given


class Body(Strict):
    """A body. ``without_effect`` are fields of the API that this server lacks, with the values at
    which they have no effect: only these are accepted, and null."""

    without_effect: ClassVar[dict[str, tuple[Any, ...]]] = {}


B = TypeVar("B", bound=Body)
MOST_MESSAGES = 32_768  # of a request


def require(holds: bool, param: str, message: str) -> None:
    """Raise RefusedRequest (400), which names a parameter, unless something holds."""
    if not holds:
        raise RefusedRequest(400, message, param=param)


def must_call(choice: Any, tools: Sequence[Tool]) -> tuple[str, ...]:
    """Return the names of the tools of which a reply has to call one: ``choice`` is "auto",
    "required" or the name of one. Raise RefusedRequest (400) for any other."""
    names = tuple(tool.name for tool in tools)
    if choice == "auto":
        return ()
    if choice == "required" and names:
        return names
    problem = "tool_choice names none of the tools of the request."
    require(choice in names, "tool_choice", problem)
    return (choice,)


def read_body(kind: type[B], content: bytes) -> B:
    """Read a body. Raise RefusedRequest (400), which names the field that is wrong."""
    try:
        given = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(400, "The body is no JSON.") from error
    if not isinstance(given, dict):
        raise RefusedRequest(400, "The body is no JSON object.")
    for name in kind.without_effect.keys() & given.keys():
        is_ignored = given.pop(name) in (None, *kind.without_effect[name])
        require(is_ignored, name, f"This server does not support {name}: leave it out.")
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        raise RefusedRequest(400, f"This server has no parameter {where}.", param=where)
    problem = f"{where}: {first['msg']}" if where else first["msg"]
    message = f"The request is not as it should be: {problem}."
    raise RefusedRequest(400, message, param=where or None)


def name_results(messages: Sequence[Message]) -> list[Message]:
    """Return messages in which each result of a tool has the name of the tool. Raise RefusedRequest
    (400) for a result whose call is not in the messages before it, and if a reply is begun."""
    is_begun = bool(messages) and messages[-1]["role"] == "assistant"
    problem = "The last message is the assistant's: this server cannot continue a reply."
    require(not is_begun, "messages", problem)
    names: dict[str, str] = {}
    named: list[Message] = []
    for i, message in enumerate(messages):
        for call in message.get("tool_calls") or ():
            names[call["id"]] = call["function"]["name"]
        if message["role"] == "tool":
            if (call_id := message.get("tool_call_id")) not in names:
                problem = f"the result of {call_id!r}, which no message before calls."
                raise RefusedRequest(400, f"messages[{i}] is {problem}", param="messages")
            message = {**message, "name": names[call_id]}
        named.append(message)
    return named


_IMAGE = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,([A-Za-z0-9+/=\s]+)")


def image_part(url: Any, where: str) -> dict[str, Any]:
    """Return an image in a message, as renderers take it. Raise RefusedRequest (400) for one that
    is not in the request itself: nothing is fetched from the network or a file."""
    found = _IMAGE.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        problem = "an image that is no data: URL of a png, jpeg, webp or gif in base64"
        raise RefusedRequest(
            400, f"{where} has {problem}; nothing is fetched from elsewhere.", param=where
        )
    try:
        b64decode(found[1])
    except ValueError as error:
        problem = f"{where} has an image that is not base64."
        raise RefusedRequest(400, problem, param=where) from error
    return {"type": "image", "image": url}


def parts_of(message: Message) -> Sequence[dict[str, Any]]:
    """Return the parts of a message's content; none if it is only text."""
    content = message.get("content")
    return content if isinstance(content, list) else ()


_MOST_AT_ONCE = 4_096  # samples under way
_MOST_KEPT = 8 * 2**20  # tokens of answered requests: about 100 MB
_LEAST_KEPT = 160  # tokens for which a request counts besides: it takes about 2 kB without any


@frozen
class Caller:
    """The sender of a request: its key, and the session in its path after ``/s/``, if any."""

    key: str | None
    session: str | None


class Models(Protocol):
    """The models of an endpoint by their names."""

    def names(self) -> Mapping[str, float]:
        """Return the names of all models, and when they were made (seconds since 1970, or 0)."""

    async def find(self, name: str, caller: Caller) -> ChatModel:
        """Return the model of a request. Raise RefusedRequest if there is none of the name (404),
        or the caller may not use it (401)."""


@frozen
class Choice:
    """A reply, as it was sampled and as it was answered. ``message`` is the reply among the
    messages of a later request, if the client sends it back unchanged; for a completion of a text,
    the text as a message."""

    token_ids: array[int]
    logprobs: array[float]
    stop_reason: Literal["stop", "length"]
    text: str
    reasoning: str
    calls: tuple[SampledCall, ...]
    message: Message


@frozen
class AnsweredRequest:
    """A request that was answered. Choice ``i`` is sample ``i % sampling.n`` of prompt
    ``i // sampling.n``."""

    id: str
    caller: Caller
    model: str
    path: str  # chat/completions, completions, responses or messages
    prompts: tuple[array[int], ...]
    choices: tuple[Choice, ...]
    sampling: SamplingRequest
    messages: Sequence[Message] | None  # None for a text
    tools: Sequence[Tool]
    user: str | None
    metadata: Mapping[str, str]

    @property
    def size(self) -> int:
        sampled = sum(len(choice.token_ids) for choice in self.choices)
        return _LEAST_KEPT + sum(map(len, self.prompts)) + sampled


Observer = Callable[[AnsweredRequest], None]


@define(eq=False)
class ModelEndpoint:
    """The state of the routes of both APIs. ``answered`` is called with each answered request, in
    the event loop, before the client has all of the answer."""

    models: Models
    answered: Observer | None = None
    _renderers: dict[tuple[str, str], Any] = field(factory=dict, init=False)
    _answered: OrderedDict[str, AnsweredRequest] = field(factory=OrderedDict, init=False)
    _kept: int = field(default=0, init=False)  # tokens
    _under_way: int = field(default=0, init=False)

    async def chat_model(self, name: str, caller: Caller, renderer: str | None) -> ChatModel:
        """Return a model with its own renderer, or the cookbook's of a name. Raise RefusedRequest
        if there is none, or the renderer does not fit the model."""
        model = await self.models.find(name, caller)
        if renderer is None:
            hint = "Use /v1/completions, or name a `renderer`."
            problem = f"{model.name} cannot chat: {model.no_renderer}. {hint}"
            require(model.renderer is not None, "renderer", problem)
            return model
        known = renderer_names()
        problem = f"There is no renderer {renderer!r}: there are {', '.join(known)}."
        require(renderer in known, "renderer", problem)
        key = model.base, renderer
        if key not in self._renderers:
            try:
                self._renderers[key] = fitting_renderer(model.tokenizer, renderer)
            except EnvError as error:
                raise RefusedRequest(400, f"{model.base}: {error}.", param="renderer") from error
        return evolve(model, renderer=self._renderers[key], answered=None)

    def start(self, model: ChatModel, request: ReplyRequest) -> Generation:
        """Start sampling. Raise TooLongError, or RefusedRequest (429) with too many samples."""
        if self._under_way + request.count > _MOST_AT_ONCE:
            raise RefusedRequest(
                429, f"More than {_MOST_AT_ONCE:,} samples would be under way at once."
            )
        generation = model.start(request)
        self._under_way += request.count

        def leave(_: asyncio.Future[Any]) -> None:
            self._under_way -= request.sampling.n

        for reply in generation.replies:
            reply.add_done_callback(leave)
        return generation

    def keep(self, answered: AnsweredRequest) -> None:
        """Keep a request, for which the oldest make room, and pass it to ``answered``."""
        self._answered[answered.id] = answered
        self._kept += answered.size
        while self._kept > _MOST_KEPT:
            _, oldest = self._answered.popitem(last=False)
            self._kept -= oldest.size
        if self.answered is not None:
            self.answered(answered)

    def find(self, request_id: str, caller: Caller) -> AnsweredRequest:
        """Return an answered request. Raise RefusedRequest (404) if it is not kept any more."""
        found = self._answered.get(request_id)
        if found is None or found.caller.session != caller.session:
            raise RefusedRequest(404, f"There is no answered request {request_id} here.")
        return found


@define(eq=False)
class Recorder:
    """Append a line (JSON) to a file for each request, with its exact tokens and their logprobs,
    but not the caller's key. Raise Error if the file cannot be written."""

    path: Path
    _file: IO[str] = field(init=False)

    def __attrs_post_init__(self) -> None:
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise Error(f"cannot write {self.path}: {error}") from error

    def __call__(self, answered: AnsweredRequest) -> None:
        sampling = answered.sampling
        row = {
            "id": answered.id,
            "model": answered.model,
            "path": answered.path,
            "session": answered.caller.session,
            "messages": answered.messages,
            "tools": [tool.shown() for tool in answered.tools],
            **{k: getattr(sampling, k) for k in ("temperature", "top_p", "max_tokens", "seed")},
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
        self._file.close()
