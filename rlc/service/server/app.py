"""The paths of the protocol: read and check a body, call its handler, write the answer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from tinker import types

from rlc.service.http import JSON, ON_ERROR, RefusedRequest, key_checker, read_content, require_key
from rlc.service.inference.endpoint import Observer
from rlc.service.inference.routes import inference_routes
from rlc.service.server import account_requests, checkpoint_requests, client_requests
from rlc.service.server.backend import Backend, Handlers
from rlc.service.server.faults import FaultyApp
from rlc.service.server.futures import EncodedReply
from rlc.service.server.served_models import ServedModels
from rlc.service.server.signing import SIGNED
from rlc.service.server.wire import PROTOBUF, Pass, read_pass

_API = "/api/v1"
_CHECKPOINT = "training_runs/{id}/checkpoints/{kind}/{name}"


def _configure(backend: Backend) -> Response:
    """The SDK asks this over a connection that it never closes, so the server closes it.

    It is told to exchange its key for an identity, the only place where it reads who it is.
    """
    content = types.ClientConfigResponse(
        pjwt_auth_enabled=True, custom_loss_server_side=backend.custom_losses
    )
    return Response(content.model_dump_json(), headers={"connection": "close"}, media_type=JSON)


# Handlers by method and path. They are called with the backend, the parts of the path, and what
# they name: as ``request`` the body and as ``query`` that of the address, each of the parameter's
# type, as ``headers`` those of the request, and as ``base_url`` where the server was found.
_HANDLERS: Handlers = {
    "POST": {
        "asample": client_requests.asample,  # this and the next first: each sample takes both
        "retrieve_future": account_requests.retrieve_future,
        "forward_backward": client_requests.forward_backward,
        "optim_step": client_requests.optim_step,
        "save_weights_for_sampler": client_requests.save_weights_for_sampler,
        "save_weights": client_requests.save_weights,
        "save_weights_external": client_requests.save_weights_external,
        "load_weights": client_requests.load_weights,
        "create_custom_loss": client_requests.create_custom_loss,
        "create_model": client_requests.create_model,
        "unload_model": client_requests.unload_model,
        "get_info": client_requests.get_info,
        "create_sampling_session": client_requests.create_sampling_session,
        "create_session": account_requests.create_session,
        "session_heartbeat": account_requests.heartbeat,
        "sessions/{id}/finish": account_requests.finish_session,
        "sessions/search": account_requests.search_sessions,
        "cancel_future": account_requests.cancel_future,
        "weights_info": checkpoint_requests.weights_info,
        "copy_weights": checkpoint_requests.copy_weights,
        f"{_CHECKPOINT}/publish": checkpoint_requests.publish,
        "auth/token": account_requests.token,
        "client/config": _configure,
        "client/dynamic_config": lambda _: types.ClientDynamicConfigResponse(
            sample_cancel_enabled=True
        ),
        "telemetry": lambda _: types.TelemetryResponse(status="accepted"),
    },
    "GET": {
        "sessions": account_requests.list_sessions,
        "sessions/{id}": account_requests.get_session,
        "sessions/{id}/trace_export": account_requests.export_trace,
        "samplers/{id}": client_requests.get_sampler,
        "training_runs": account_requests.training_runs,
        "training_runs/{id}": lambda backend, run_id: backend.runs.describe(run_id),
        "training_runs/{id}/checkpoints": checkpoint_requests.checkpoints_of,
        f"{_CHECKPOINT}/external_weights_urls": checkpoint_requests.urls,
        "checkpoints": checkpoint_requests.all_checkpoints,
        "auth/apikey/me": account_requests.api_key,
        "get_server_capabilities": account_requests.capabilities,
        "healthz": lambda _: types.HealthResponse(status="ok"),
    },
    "PUT": {
        f"{_CHECKPOINT}/ttl": checkpoint_requests.set_ttl,
        "sessions/{id}/project": account_requests.assign_project,
    },
    "DELETE": {
        _CHECKPOINT: checkpoint_requests.delete,
        f"{_CHECKPOINT}/publish": checkpoint_requests.unpublish,
        "auth/apikey/me": account_requests.delete_api_key,
    },
}


def build_app(
    backend: Backend, key: str | None = None, answered: Observer | None = None
) -> ASGIApp:
    """The ASGI application. With ``key``, requests must carry it, as ``X-API-Key`` or
    ``Authorization: Bearer``. ``answered`` is told of each answer of a model."""

    def route(method: str, address: str, handler: Callable[..., Any]) -> Route:
        wanted = get_type_hints(handler)

        async def endpoint(request: Request) -> Response:
            given: dict[str, Any] = {}
            if "request" in wanted:
                given["request"] = await _read(request, wanted["request"])
            if "query" in wanted:
                given["query"] = _query(request, wanted["query"])
            if "headers" in wanted:
                given["headers"] = request.headers
            if "base_url" in wanted:
                given["base_url"] = str(request.base_url)
            result = handler(backend, *request.path_params.values(), **given)
            return _answer(await result if inspect.isawaitable(result) else result)

        return Route(address, endpoint, methods=[method])

    routes: list[BaseRoute] = [
        route(method, f"{_API}/{path}", handler)
        for added in (_HANDLERS, *(extension.handlers() for extension in backend.extensions))
        for method, handlers in added.items()
        for path, handler in handlers.items()
    ]
    routes.append(route("GET", f"{SIGNED}{{path:path}}", account_requests.download))
    routes += inference_routes(ServedModels(backend), answered)
    app: ASGIApp = Starlette(routes=routes, exception_handlers=ON_ERROR)
    if key is not None:
        is_key, signed = key_checker(key), backend.signer.has_signed  # an identity given for it
        app = require_key(app, lambda given: is_key(given) or signed(given), free=SIGNED)
    if any(backend.disturbances.faults.of_requests.values()):
        app = FaultyApp(app, backend.disturbances, backend.restart)
    return app


def _answer(result: BaseModel | EncodedReply | Response | None) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, EncodedReply):
        return Response(result.content, result.status, media_type=result.content_type)
    return Response("{}" if result is None else result.model_dump_json(), media_type=JSON)


async def _read(request: Request, kind: type[Any]) -> Any:
    if kind is Pass:
        return read_pass(await read_content(request, PROTOBUF))
    content = await read_content(request, JSON)
    with _explaining("body"):
        return kind.model_validate_json(content)


def _query(request: Request, kind: type[Any]) -> Any:
    if not isinstance(kind, type) or not issubclass(kind, BaseModel):
        return request.query_params
    with _explaining("query"):
        return kind.model_validate(dict(request.query_params))


@contextmanager
def _explaining(part: str) -> Iterator[None]:
    """Refuse what a model does not accept."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise RefusedRequest(400, f"The {part} is not as it should be: {what}.") from error
