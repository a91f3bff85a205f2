"""The paths of the protocol: read and check a body, call its handler, write the answer."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from hmac import compare_digest
from typing import Any, TypeVar

from attrs import frozen
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

# Handlers of POST: a path, the type of its body, and what is called with the backend and the body.
_POSTS: dict[str, tuple[type[BaseModel], Callable[..., Any]]] = {
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
    "sessions/{id}/finish": (listing.Finish, listing.finish_session),
    "cancel_future": (listing.CancelFuture, listing.cancel_future),
    "weights_info": (listing.WeightsInfo, listing.weights_info),
}
# Handlers of GET that take the parameters of a query, and those that take the parts of a path.
_QUERIES: dict[str, Callable[[Backend, Any], BaseModel]] = {
    "sessions": listing.list_sessions,
    "training_runs": listing.training_runs,
    "checkpoints": listing.all_checkpoints,
}
_GETS: dict[str, Callable[..., BaseModel]] = {
    "get_server_capabilities": listing.capabilities,
    "samplers/{id}": sampling.get_sampler,
    "sessions/{id}": listing.get_session,
    "training_runs/{id}": lambda backend, run_id: backend.runs.describe(run_id),
    "training_runs/{id}/checkpoints": listing.checkpoints_of,
    "healthz": lambda _: types.HealthResponse(status="ok"),
}
_CHECKPOINT = "training_runs/{id}/checkpoints/{checkpoint:path}"


def build_app(backend: Backend, key: str | None = None) -> ASGIApp:
    """The ASGI application. With ``key``, requests must carry it as ``X-API-Key``."""

    def handled(handler: Callable[..., Any], body: type[BaseModel] | None = None) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            arguments = list(request.path_params.values())
            if body is not None:
                arguments.append(await _read_json(request, body))
            result = handler(backend, *arguments)
            return _answer(await result if inspect.isawaitable(result) else result)

        return endpoint

    def queried(handler: Callable[[Backend, Any], BaseModel]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            return _answer(handler(backend, request.query_params))

        return endpoint

    async def retrieve_future(request: Request) -> Response:
        body = await _read_json(request, types.FutureRetrieveRequest)
        reply = await backend.futures.retrieve(body.request_id)
        return Response(reply.content, reply.status, media_type=reply.content_type)

    async def forward_backward(request: Request) -> Response:
        content = await _read_body(request, PROTOBUF)
        return _answer(training.forward_backward(backend, read_pass(content)))

    routes = [
        _route("POST", "retrieve_future", retrieve_future),
        _route("POST", "forward_backward", forward_backward),
        *(_route("POST", path, handled(handler, body)) for path, (body, handler) in _POSTS.items()),
        *(_route("GET", path, queried(handler)) for path, handler in _QUERIES.items()),
        *(_route("GET", path, handled(handler)) for path, handler in _GETS.items()),
        _route("PUT", f"{_CHECKPOINT}/ttl", handled(listing.set_ttl, listing.Ttl)),
        _route("DELETE", _CHECKPOINT, handled(listing.delete_checkpoint)),
        _route("POST", "client/config", _configure),
        _route("POST", "client/dynamic_config", handled(lambda _: _DYNAMIC)),
        _route("POST", "telemetry", handled(lambda _: types.TelemetryResponse(status="accepted"))),
    ]
    handlers: Any = {HTTPException: _no_such_path, Exception: _failed}
    app: ASGIApp = Starlette(routes=routes, exception_handlers=handlers)
    if key is not None:
        app = _KeyRequired(app, key)
    if any(backend.faults.of_requests.values()):
        app = FaultyApp(app, backend.faults, backend.restart)
    return app


_DYNAMIC = types.ClientDynamicConfigResponse(sample_cancel_enabled=True)


def _route(method: str, path: str, endpoint: Endpoint) -> Route:
    """A path of the API, on which a refusal is answered with its status and sentence."""

    async def guarded(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as refused:
            return JSONResponse({"detail": str(refused)}, refused.status)
        except ServiceError as error:
            return JSONResponse({"detail": str(error)}, 400)

    return Route(f"{_API}/{path}", guarded, methods=[method])


async def _configure(request: Request) -> Response:  # noqa: ARG001 (every version is welcome)
    """The SDK asks this over a connection that it never closes, so the server closes it."""
    content = types.ClientConfigResponse().model_dump_json()
    return Response(content, headers={"connection": "close"}, media_type=JSON)


def _answer(result: BaseModel) -> Response:
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


async def _no_such_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    details = {
        404: f"This server has no {request.url.path}.",
        405: f"{request.url.path} does not take {request.method}.",
    }
    detail = details.get(error.status_code, error.detail)
    return JSONResponse({"detail": detail}, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse({"detail": f"The server failed: {type(error).__name__}."}, 500)


@frozen(eq=False)
class _KeyRequired:
    """Passes on the requests that carry the key."""

    app: ASGIApp
    key: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given = dict(scope["headers"]).get(b"x-api-key", b"")
            if not compare_digest(given, self.key.encode()):
                refusal = JSONResponse({"detail": "The key is not the one of this server."}, 401)
                return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)
