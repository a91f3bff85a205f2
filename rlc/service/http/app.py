"""The protocol's paths: bodies read and checked, requests handed on, answers written."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from tinker import types

from rlc.service.errors import ServiceError
from rlc.service.http import listing, sampling, training
from rlc.service.http.backend import Backend
from rlc.service.http.faults import FaultyApp
from rlc.service.http.futures import JSON
from rlc.service.http.refusals import Refused
from rlc.service.http.wire import PROTOBUF, read_pass

LARGEST_BODY = 64 * 2**20  # the SDK cuts forward_backward at 5 MB unless one datum is larger
_API = "/api/v1"
_log = logging.getLogger(__name__)

T = TypeVar("T", bound=BaseModel)
Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Backend, T], BaseModel | Awaitable[BaseModel]]

_POSTS: dict[str, tuple[type[BaseModel], Handler[Any]]] = {
    "asample": (types.SampleRequest, sampling.asample),
    "optim_step": (types.OptimStepRequest, training.optim_step),
    "save_weights_for_sampler": (
        types.SaveWeightsForSamplerRequest,
        training.save_weights_for_sampler,
    ),
    "save_weights": (types.SaveWeightsRequest, training.save_weights),
    "load_weights": (types.LoadWeightsRequest, training.load_weights),
    "create_model": (types.CreateModelRequest, training.create_model),
    "unload_model": (types.UnloadModelRequest, training.unload_model),
    "get_info": (types.GetInfoRequest, training.get_info),
    "create_sampling_session": (
        types.CreateSamplingSessionRequest,
        sampling.create_sampling_session,
    ),
    "create_session": (types.CreateSessionRequest, listing.create_session),
    "session_heartbeat": (types.SessionHeartbeatRequest, listing.heartbeat),
    "cancel_future": (listing.CancelFuture, listing.cancel_future),
    "weights_info": (listing.WeightsInfo, listing.weights_info),
}


def build_app(backend: Backend, key: str | None = None) -> ASGIApp:
    """The ASGI application. With ``key``, requests must carry it as ``X-API-Key``."""
    routes = [
        _route("POST", "retrieve_future", lambda r: _retrieve(backend, r)),
        _route("POST", "forward_backward", lambda r: _forward_backward(backend, r)),
        *(_route("POST", path, _posted(backend, *entry)) for path, entry in _POSTS.items()),
        *listing_routes(backend),
        _route("POST", "client/config", _configure),
        _route("POST", "client/dynamic_config", lambda _: _answer(_DYNAMIC)),
        _route("POST", "telemetry", lambda _: _answer(types.TelemetryResponse(status="accepted"))),
        _route("GET", "healthz", lambda _: _answer(types.HealthResponse(status="ok"))),
    ]
    handlers: Any = {HTTPException: _not_here, Exception: _broken}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    if key is not None:
        app = _Guarded(app, key)
    if any(backend.faults.of_requests.values()):
        app = FaultyApp(app, backend.faults, backend.restart)
    return app


_DYNAMIC = types.ClientDynamicConfigResponse(sample_cancel_enabled=True)


def listing_routes(backend: Backend) -> list[Route]:
    """The part of the API that is addressed by paths and queries."""

    async def finish(request: Request) -> Response:
        body = await _read_json(request, listing.Finish)
        return await _answer(listing.finish_session(backend, _in_path(request, "id"), body))

    async def set_ttl(request: Request) -> Response:
        body = await _read_json(request, listing.Ttl)
        ids = _in_path(request, "id"), _in_path(request, "checkpoint")
        return await _answer(listing.set_ttl(backend, *ids, body))

    async def delete(request: Request) -> Response:
        ids = _in_path(request, "id"), _in_path(request, "checkpoint")
        return await _answer(listing.delete_checkpoint(backend, *ids))

    def of_query(handler: Callable[[Backend, Any], BaseModel]) -> Endpoint:
        return lambda request: _answer(handler(backend, request.query_params))

    def of_id(handler: Callable[[Backend, str], BaseModel]) -> Endpoint:
        return lambda request: _answer(handler(backend, _in_path(request, "id")))

    checkpoint = "training_runs/{id}/checkpoints/{checkpoint:path}"
    return [
        _route("GET", "get_server_capabilities", lambda _: _answer(listing.capabilities(backend))),
        _route("GET", "samplers/{id}", of_id(sampling.get_sampler)),
        _route("GET", "sessions", of_query(listing.list_sessions)),
        _route("GET", "sessions/{id}", of_id(listing.get_session)),
        _route("POST", "sessions/{id}/finish", finish),
        _route("GET", "training_runs", of_query(listing.training_runs)),
        _route("GET", "training_runs/{id}", of_id(lambda b, i: b.runs.describe(i))),
        _route("GET", "training_runs/{id}/checkpoints", of_id(listing.checkpoints_of)),
        _route("GET", "checkpoints", of_query(listing.all_checkpoints)),
        _route("PUT", f"{checkpoint}/ttl", set_ttl),
        _route("DELETE", checkpoint, delete),
    ]


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    """A path of the API; what is refused becomes its status and a sentence."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as refused:
            return JSONResponse({"detail": refused.message}, refused.status)
        except ServiceError as error:
            return JSONResponse({"detail": str(error)}, 400)

    return Route(f"{_API}/{path}", guarded, methods=[method])


def _posted(backend: Backend, body: type[BaseModel], handler: Handler[Any]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        result = handler(backend, await _read_json(request, body))
        return await _answer(await result if inspect.isawaitable(result) else result)

    return endpoint


async def _configure(request: Request) -> Response:  # noqa: ARG001 (any version is welcome)
    """The SDK asks this over a connection that it never closes; so this side does."""
    content = types.ClientConfigResponse().model_dump_json()
    return Response(content, headers={"connection": "close"}, media_type=JSON)


async def _retrieve(backend: Backend, request: Request) -> Response:
    body = await _read_json(request, types.FutureRetrieveRequest)
    reply = await backend.futures.retrieve(body.request_id)
    return Response(reply.content, reply.status, media_type=reply.content_type)


async def _forward_backward(backend: Backend, request: Request) -> Response:
    content = await _read_body(request, PROTOBUF)
    return await _answer(training.forward_backward(backend, read_pass(content)))


async def _answer(result: BaseModel) -> Response:
    return Response(result.model_dump_json(), media_type=JSON)


async def _read_json(request: Request, kind: type[T]) -> T:
    content = await _read_body(request, JSON)
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise Refused(400, f"The body is not as it should be: {what}.") from error


async def _read_body(request: Request, content_type: str) -> bytes:
    given = request.headers.get("content-type", "nothing")
    if given.split(";")[0].strip().lower() != content_type:
        raise Refused(415, f"This path takes {content_type}, not {given}.")
    if encoding := request.headers.get("content-encoding"):
        raise Refused(415, f"This server takes no compressed bodies ({encoding}).")
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > LARGEST_BODY:
            raise Refused(413, f"The body is larger than {LARGEST_BODY // 2**20} MiB.")
        pieces.append(piece)
    return b"".join(pieces)


def _in_path(request: Request, name: str) -> str:
    return str(request.path_params[name])


async def _not_here(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    says = {
        404: f"This server has no {request.url.path}.",
        405: f"{request.url.path} does not take {request.method}.",
    }
    detail = says.get(error.status_code, error.detail)
    return JSONResponse({"detail": detail}, error.status_code)


async def _broken(request: Request, error: Exception) -> Response:
    _log.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse({"detail": f"The server failed: {type(error).__name__}."}, 500)


class _Guarded:
    """Lets requests with the key through."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"x-api-key", b"")
            if not compare_digest(given, self._key):
                refusal = JSONResponse({"detail": "The key is not the one of this server."}, 401)
                return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)
