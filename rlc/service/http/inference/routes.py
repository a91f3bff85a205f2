"""The paths of OpenAI's and Anthropic's APIs: read a body, sample, write the answer.

OpenAI's clients take ``http://HOST:PORT/v1`` as their base URL and Anthropic's ``http://HOST:PORT``.
Hosted Tinker has both APIs under paths of their own, which are here too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from rlc.service.errors import ServiceError
from rlc.service.http.backend import Backend
from rlc.service.http.bodies import JSON, read_content
from rlc.service.http.inference.anthropic.replies import MessageAnswer
from rlc.service.http.inference.anthropic.requests import CountRequest, MessagesRequest
from rlc.service.http.inference.models import InferenceModel
from rlc.service.http.inference.openai.replies import ChatAnswer, CompletionAnswer
from rlc.service.http.inference.openai.requests import ChatRequest, CompletionRequest
from rlc.service.http.inference.prompts import Message, Tool, chat_prompt, name_results
from rlc.service.http.inference.refusals import error_body, speaks_anthropic
from rlc.service.http.inference.replies import (
    ChatReader,
    Reader,
    Step,
    TextReader,
    Whole,
    read_steps,
)
from rlc.service.http.inference.sampling import Choice, Draw, Ends, Entry, Generation, Inference
from rlc.service.http.inference.strict import read_body

OPENAI = ("/v1", "/oai/api/v1")
ANTHROPIC = ("/v1", "/anthropic/api/v1")
_OPENING = "<think>"
_log = logging.getLogger(__name__)


class Answer(Protocol):
    """What writes an answer of one API."""

    @property
    def id(self) -> str: ...
    @property
    def generation(self) -> Generation: ...
    def whole(self, wholes: Sequence[Whole]) -> dict[str, Any]: ...
    def first(self) -> list[dict[str, Any]]: ...
    def step(self, step: Step) -> list[dict[str, Any]]: ...
    def last(self, wholes: Sequence[Whole]) -> list[dict[str, Any]]: ...


def inference_routes(backend: Backend) -> list[Route]:
    """The routes of both APIs over the models of a server."""
    inference = Inference(backend)

    def at(
        prefixes: Sequence[str],
        path: str,
        handler: Callable[[Inference, Request], Awaitable[Response]],
        method: str = "POST",
    ) -> list[Route]:
        endpoint = partial(handler, inference)
        return [Route(f"{prefix}/{path}", endpoint, methods=[method]) for prefix in prefixes]

    everywhere = tuple(dict.fromkeys((*OPENAI, *ANTHROPIC)))
    return [
        *at(OPENAI, "chat/completions", _chat),
        *at(OPENAI, "completions", _complete),
        *at(ANTHROPIC, "messages", _message),
        *at(ANTHROPIC, "messages/count_tokens", _count_tokens),
        *at(everywhere, "models", _list_models, "GET"),
        *at(everywhere, "models/{name:path}", _model, "GET"),
        *at(everywhere, "requests/{id}", _sampled, "GET"),
    ]


async def _chat(inference: Inference, request: Request) -> Response:
    body = read_body(ChatRequest, await read_content(request, JSON))
    model = await inference.models.find(body.model)
    renderer = inference.models.renderer(model, body.renderer)
    tools, messages, how = body.offered(), name_results(body.conversation()), body.how()
    prompt, make_reader, ends = _prepare(model, renderer, messages, tools, how)
    generation = inference.start(model, [prompt], how, ends)
    answer = ChatAnswer(f"chatcmpl-{uuid4().hex}", int(time.time()), generation, body)
    readers = [make_reader() for _ in range(how.n)]
    keep = partial(_keep, inference, answer, body.user, body.metadata)
    return await _respond(request, answer, readers, body.stream, keep)


async def _complete(inference: Inference, request: Request) -> Response:
    body = read_body(CompletionRequest, await read_content(request, JSON))
    model = await inference.models.find(body.model)
    how = body.how()
    ends = Ends(tuple(sorted(model.end_tokens)), how.stops)
    prompts = body.prompts(model.tokenizer)
    generation = inference.start(model, prompts, how, ends)
    answer = CompletionAnswer(f"cmpl-{uuid4().hex}", int(time.time()), generation, body)
    readers = [_text_reader(model, ends) for _ in range(how.n * len(prompts))]
    keep = partial(_keep, inference, answer, body.user, body.metadata)
    return await _respond(request, answer, readers, body.stream, keep)


async def _message(inference: Inference, request: Request) -> Response:
    body = read_body(MessagesRequest, await read_content(request, JSON))
    model = await inference.models.find(body.model)
    renderer = inference.models.renderer(model, body.renderer)
    tools, messages, how = body.offered(), name_results(body.conversation()), body.how()
    prompt, make_reader, ends = _prepare(model, renderer, messages, tools, how)
    generation = inference.start(model, [prompt], how, ends)
    answer = MessageAnswer(f"msg_{uuid4().hex}", generation, body)
    user = None if body.metadata is None else body.metadata.user_id
    keep = partial(_keep, inference, answer, user, None)
    return await _respond(request, answer, [make_reader()], body.stream, keep)


async def _count_tokens(inference: Inference, request: Request) -> Response:
    body = read_body(CountRequest, await read_content(request, JSON))
    model = await inference.models.find(body.model)
    renderer = inference.models.renderer(model, body.renderer)
    prompt = chat_prompt(renderer, name_results(body.conversation()), body.offered())
    return JSONResponse({"input_tokens": len(prompt)})


def _prepare(
    model: InferenceModel,
    renderer: Any,
    messages: Sequence[Message],
    tools: Sequence[Tool],
    how: Draw,
) -> tuple[list[int], Callable[[], Reader], Ends]:
    """The prompt of a chat, what reads its replies, and what ends them."""
    prompt = chat_prompt(renderer, messages, tools)
    stops = list(renderer.get_stop_sequences())
    # A format that ends with text leaves the end to a base model's own token, too.
    tokens = tuple(stop for stop in stops if isinstance(stop, int)) or tuple(model.end_tokens)
    texts = tuple(stop for stop in stops if isinstance(stop, str))
    ends = Ends(tokens, (*how.stops, *texts))
    is_reasoning = model.tokenizer.decode(prompt[-8:]).rstrip().endswith(_OPENING)

    def make_reader() -> Reader:
        return ChatReader(renderer, _text_reader(model, ends), tools, is_reasoning)

    return prompt, make_reader, ends


def _text_reader(model: InferenceModel, ends: Ends) -> TextReader:
    return TextReader(model.tokenizer, frozenset(ends.tokens), ends.cutting(model))


def _keep(
    inference: Inference,
    answer: Answer,
    user: str | None,
    metadata: dict[str, str] | None,
    wholes: Sequence[Whole],
) -> None:
    """Remember exactly what was sampled."""
    choices = [
        Choice(
            array("i", [token.token for token in whole.tokens]),
            array("d", [token.logprob for token in whole.tokens]),
        )
        for whole in wholes
    ]
    prompts = tuple(array("i", prompt) for prompt in answer.generation.prompts)
    model = answer.generation.model.name
    inference.record(Entry(answer.id, model, prompts, tuple(choices), user, metadata or {}))


async def _respond(
    request: Request,
    answer: Answer,
    readers: Sequence[Reader],
    stream: bool | None,
    keep: Callable[[Sequence[Whole]], None],
) -> Response:
    """Answer at once or in a stream. Where the client disconnects, sampling stops."""
    wholes = [Whole() for _ in readers]

    async def steps() -> AsyncIterator[Step]:
        async for step in read_steps(answer.generation.tokens(), readers):
            wholes[step.choice].add(step)
            yield step
        keep(wholes)

    if stream:
        events = _events(request, answer, steps(), wholes)
        headers = {"cache-control": "no-cache"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def all_steps() -> None:
        async for _ in steps():
            pass

    if not await _unless_gone(request, all_steps()):
        return Response(status_code=499)  # nobody reads it
    return JSONResponse(answer.whole(wholes))


async def _events(
    request: Request, answer: Answer, steps: AsyncIterator[Step], wholes: Sequence[Whole]
) -> AsyncIterator[bytes]:
    """An answer as server-sent events: Anthropic's have names, OpenAI's end with a word."""
    anthropic = isinstance(answer, MessageAnswer)

    def written(events: Sequence[dict[str, Any]]) -> bytes:
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if anthropic else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
        return "".join(lines).encode()

    try:
        yield written(answer.first())
        async for step in steps:
            if events := answer.step(step):
                yield written(events)
        yield written(answer.last(wholes))
    except ServiceError as error:
        yield written([error_body(request.scope, 500, str(error))])
    except Exception as error:
        _log.error("%s failed in a stream", request.url.path, exc_info=error)
        said = f"The server failed: {type(error).__name__}."
        yield written([error_body(request.scope, 500, said)])
    if not anthropic:
        yield b"data: [DONE]\n\n"


async def _unless_gone(request: Request, work: Awaitable[None]) -> bool:
    """Wait for some work, but cancel it when the client disconnects; return whether it is done."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({doing, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            return False
        doing.result()
        return True
    finally:
        doing.cancel()
        leaving.cancel()


async def _list_models(inference: Inference, request: Request) -> Response:
    models = [_described(request, name, made) for name, made in inference.models.names().items()]
    if speaks_anthropic(request.scope):
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]}
        return JSONResponse({"data": models, "has_more": False, **ends})
    return JSONResponse({"object": "list", "data": models})


async def _model(inference: Inference, request: Request) -> Response:
    name = request.path_params["name"]
    model = await inference.models.find(name)
    made = inference.models.names().get(model.name.rpartition(";")[2], 0.0)
    return JSONResponse(_described(request, name, made))


def _described(request: Request, name: str, made: float) -> dict[str, Any]:
    if speaks_anthropic(request.scope):
        created = datetime.fromtimestamp(made, UTC).isoformat()
        said = {"display_name": name, "created_at": created, "lifecycle": "active"}
        return {"type": "model", "id": name, **said}
    return {"id": name, "object": "model", "created": int(made), "owned_by": "rlc"}


async def _sampled(inference: Inference, request: Request) -> Response:
    """The tokens of an answered request, exactly as they were sampled."""
    entry = inference.entry(request.path_params["id"])
    return JSONResponse(
        {
            "id": entry.id,
            "model": entry.model,
            "prompts": [list(prompt) for prompt in entry.prompts],
            "choices": [
                {"token_ids": list(choice.token_ids), "logprobs": list(choice.logprobs)}
                for choice in entry.choices
            ],
            "user": entry.user,
            "metadata": entry.metadata,
        }
    )
