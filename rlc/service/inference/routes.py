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
from typing import Any, TypeVar
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route

from rlc.service.chats.model import Generation, ReplyRequest
from rlc.service.chats.prompts import ChatError, Message
from rlc.service.chats.replies import FullReply, Reader, Step, read_steps
from rlc.service.http import (
    JSON,
    ON_ERROR,
    error_body,
    given_key,
    off_loop,
    read_content,
    speaks_anthropic,
)
from rlc.service.inference.anthropic import CountRequest, MessageAnswer, MessagesRequest
from rlc.service.inference.endpoint import (
    AnsweredRequest,
    Body,
    Caller,
    Choice,
    ModelEndpoint,
    Models,
    Observer,
    name_results,
    read_body,
)
from rlc.service.inference.openai import (
    ChatAnswer,
    ChatRequest,
    CompletionAnswer,
    CompletionRequest,
)
from rlc.service.inference.responses import ResponseAnswer, ResponsesRequest
from rlc.service.interface import ServiceError

OPENAI = ("/v1", "/oai/api/v1")
ANTHROPIC = ("/v1", "/anthropic/api/v1")
SESSION = "/s/{session}"  # before the paths: whose requests they are
_NOBODY = Response(status_code=499)  # the client has left
_log = logging.getLogger(__name__)


Answer = ChatAnswer | CompletionAnswer | MessageAnswer | ResponseAnswer


def endpoint_app(models: Models, answered: Observer | None = None) -> Starlette:
    """Return an application of both APIs. ``answered`` is called with each answered request."""
    return Starlette(routes=inference_routes(models, answered), exception_handlers=ON_ERROR)


def inference_routes(models: Models, answered: Observer | None = None) -> list[BaseRoute]:
    endpoint = ModelEndpoint(models, answered)

    def at(
        prefixes: Sequence[str],
        path: str,
        handler: Callable[[ModelEndpoint, Request], Awaitable[Response]],
        method: str = "POST",
    ) -> list[Route]:
        handle = partial(handler, endpoint)
        return [Route(f"{prefix}/{path}", handle, methods=[method]) for prefix in prefixes]

    everywhere = tuple(dict.fromkeys((*OPENAI, *ANTHROPIC)))
    routes = [
        *at(OPENAI, "chat/completions", _chat),
        *at(OPENAI, "completions", _complete),
        *at(OPENAI, "responses", _response),
        *at(ANTHROPIC, "messages", _message),
        *at(ANTHROPIC, "messages/count_tokens", _count_tokens),
        *at(everywhere, "models", _list_models, "GET"),
        *at(everywhere, "models/{name:path}", _model, "GET"),
        *at(everywhere, "requests/{id}", _sampled, "GET"),
    ]
    return [*routes, Mount(SESSION, routes=routes)]


_Body = TypeVar("_Body", bound=Body)


async def _read(kind: type[_Body], request: Request) -> tuple[_Body, int]:
    """Return a body and its size in bytes."""
    content = await read_content(request, JSON)
    return await off_loop(len(content), partial(read_body, kind, content)), len(content)


async def _chat(endpoint: ModelEndpoint, request: Request) -> Response:
    body, size = await _read(ChatRequest, request)
    wanted, generation = await _start_chat(endpoint, request, body, size)
    answer = ChatAnswer(f"chatcmpl-{uuid4().hex}", int(time.time()), generation, body)
    return await _respond(endpoint, request, "chat/completions", wanted, answer)


async def _message(endpoint: ModelEndpoint, request: Request) -> Response:
    body, size = await _read(MessagesRequest, request)
    wanted, generation = await _start_chat(endpoint, request, body, size)
    answer = MessageAnswer(f"msg_{uuid4().hex}", generation, body)
    return await _respond(endpoint, request, "messages", wanted, answer)


async def _response(endpoint: ModelEndpoint, request: Request) -> Response:
    body, size = await _read(ResponsesRequest, request)
    wanted, generation = await _start_chat(endpoint, request, body, size)
    answer = ResponseAnswer(f"resp_{uuid4().hex}", int(time.time()), generation, body)
    return await _respond(endpoint, request, "responses", wanted, answer)


async def _start_chat(
    endpoint: ModelEndpoint,
    request: Request,
    body: ChatRequest | MessagesRequest | ResponsesRequest,
    size: int,
) -> tuple[ReplyRequest, Generation]:
    model = await endpoint.chat_model(body.model, _caller(request), body.renderer)

    def read() -> ReplyRequest:
        tools = body.offered()
        form = body.form(tools)
        return ReplyRequest(body.how(), form.shown(_messages(body)), tools, form=form)

    wanted = await off_loop(size, read)
    return wanted, endpoint.start(model, wanted)


async def _complete(endpoint: ModelEndpoint, request: Request) -> Response:
    body, size = await _read(CompletionRequest, request)
    model = await endpoint.models.find(body.model, _caller(request))
    texts = await off_loop(size, partial(body.prompts, model))
    wanted = ReplyRequest(body.how(), texts=texts)
    generation = endpoint.start(model, wanted)
    answer = CompletionAnswer(f"cmpl-{uuid4().hex}", int(time.time()), generation, body)
    return await _respond(endpoint, request, "completions", wanted, answer)


async def _count_tokens(endpoint: ModelEndpoint, request: Request) -> Response:
    body, size = await _read(CountRequest, request)
    model = await endpoint.chat_model(body.model, _caller(request), body.renderer)
    tools = body.offered()
    prompt = await off_loop(size, lambda: model.prompt(_messages(body), tools))
    return JSONResponse({"input_tokens": len(prompt.tokens)})


def _messages(body: ChatRequest | CountRequest | ResponsesRequest) -> Sequence[Message]:
    return name_results(body.conversation())


def _caller(request: Request) -> Caller:
    return Caller(given_key(request.scope), request.path_params.get("session"))


async def _respond(
    endpoint: ModelEndpoint, request: Request, path: str, wanted: ReplyRequest, answer: Answer
) -> Response:
    """Answer at once or in a stream. When the client disconnects, sampling stops. An error before
    the first token is one of the request."""
    generation, model = answer.generation, answer.generation.model
    if not await _unless_gone(request, generation.begin()):
        return _NOBODY
    readers: list[Reader]
    if wanted.messages is None:
        readers = [model.text_reader(generation.ends) for _ in range(wanted.count)]
    else:
        of = generation.prompts[0], generation.ends, wanted.tools, generation.opening
        readers = [model.chat_reader(*of) for _ in range(generation.n)]
    replies = [FullReply() for _ in readers]

    async def steps() -> AsyncIterator[Step]:
        async for step in read_steps(generation.tokens(), readers):
            replies[step.choice].add(step)
            if all(reply.end is not None for reply in replies):  # the client may leave now
                _keep(endpoint, _caller(request), path, wanted, answer, replies)
            yield step

    if answer.request.stream:
        events = _events(request, answer, steps(), replies)
        headers = {"cache-control": "no-cache"}
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def all_steps() -> None:
        async for _ in steps():
            pass

    if not await _unless_gone(request, all_steps()):
        return _NOBODY
    return JSONResponse(answer.full(replies))


def _keep(
    endpoint: ModelEndpoint,
    caller: Caller,
    path: str,
    wanted: ReplyRequest,
    answer: Answer,
    replies: Sequence[FullReply],
) -> None:
    generation, choices = answer.generation, list[Choice]()
    for i, reply in enumerate(replies):
        assert reply.end is not None
        choice = Choice(
            array("i", [token.token for token in reply.tokens]),
            array("d", [token.logprob for token in reply.tokens]),
            reply.tokens[-1].stop_reason or "stop",
            reply.text,
            reply.reasoning,
            reply.end.calls,
            answer.message(i, reply),
        )
        choices.append(choice)
    sent = [one.text for one in choices], [one.message for one in choices]
    generation.keep(*sent, [one.token_ids for one in choices])
    answered = AnsweredRequest(
        answer.id,
        caller,
        generation.model.name,
        path,
        tuple(array("i", prompt) for prompt in generation.prompts),
        tuple(choices),
        generation.sampling,
        wanted.messages,
        wanted.tools,
        *answer.request.labels(),
    )
    endpoint.keep(answered)


async def _events(
    request: Request, answer: Answer, steps: AsyncIterator[Step], replies: Sequence[FullReply]
) -> AsyncIterator[bytes]:
    """Iterate over an answer's server-sent events. Anthropic's and those of responses have names,
    OpenAI's others an end mark."""
    is_named = isinstance(answer, MessageAnswer | ResponseAnswer)

    def written(events: Sequence[dict[str, Any]]) -> bytes:
        lines = []
        for event in events:
            name = f"event: {event['type']}\n" if is_named else ""
            lines.append(f"{name}data: {json.dumps(event)}\n\n")
        return "".join(lines).encode()

    def failed(message: str) -> bytes:
        if isinstance(answer, ResponseAnswer):
            return written([answer.failed(message)])
        return written([error_body(request.scope, 500, message)])

    try:
        yield written(answer.first())
        async for step in steps:
            if events := answer.step(step):
                yield written(events)
        yield written(answer.last(replies))
    except (ServiceError, ChatError) as error:
        yield failed(str(error))
    except Exception as error:
        _log.error("%s failed in a stream", request.url.path, exc_info=error)
        yield failed(f"The server failed: {type(error).__name__}.")
    if not is_named:
        yield b"data: [DONE]\n\n"


async def _unless_gone(request: Request, work: Awaitable[None]) -> bool:
    """Wait for work, or cancel it when the client disconnects; return whether it is done."""

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


async def _list_models(endpoint: ModelEndpoint, request: Request) -> Response:
    models = [_described(request, name, made) for name, made in endpoint.models.names().items()]
    if speaks_anthropic(request.scope):
        ends = {"first_id": models[0]["id"], "last_id": models[-1]["id"]}
        return JSONResponse({"data": models, "has_more": False, **ends})
    return JSONResponse({"object": "list", "data": models})


async def _model(endpoint: ModelEndpoint, request: Request) -> Response:
    name = request.path_params["name"]
    model = await endpoint.models.find(name, _caller(request))
    made = endpoint.models.names().get(model.name.rpartition(";")[2], 0.0)
    return JSONResponse(_described(request, name, made))


def _described(request: Request, name: str, made: float) -> dict[str, Any]:
    if speaks_anthropic(request.scope):
        created = datetime.fromtimestamp(made, UTC).isoformat()
        about = {"display_name": name, "created_at": created, "lifecycle": "active"}
        return {"type": "model", "id": name, **about}
    return {"id": name, "object": "model", "created": int(made), "owned_by": "rlc"}


async def _sampled(endpoint: ModelEndpoint, request: Request) -> Response:
    answered = endpoint.find(request.path_params["id"], _caller(request))
    return JSONResponse(
        {
            "id": answered.id,
            "model": answered.model,
            "prompts": [list(prompt) for prompt in answered.prompts],
            "choices": [
                {"token_ids": list(choice.token_ids), "logprobs": list(choice.logprobs)}
                for choice in answered.choices
            ],
            "user": answered.user,
            "metadata": dict(answered.metadata),
        }
    )
