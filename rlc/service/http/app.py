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

from rlc.service.http import custom_losses, listing, sampling, training
from rlc.service.http.account import routes as account
from rlc.service.http.account.signing import SIGNED
from rlc.service.http.backend import Backend
from rlc.service.http.bodies import JSON, read_content
from rlc.service.http.checkpoints import external
from rlc.service.http.checkpoints import routes as checkpoints
from rlc.service.http.extension import Handlers
from rlc.service.http.faults import FaultyApp
from rlc.service.http.futures import Reply
from rlc.service.http.inference.endpoint import Observer
from rlc.service.http.inference.routes import inference_routes
from rlc.service.http.inference.served import ServedModels
from rlc.service.http.refusals import ON_ERROR, Refused, key_checker, require_key
from rlc.service.http.wire import PROTOBUF, Pass, read_pass

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
        "asample": sampling.asample,  # this and the next first: each sample takes both
        "retrieve_future": listing.retrieve_future,
        "forward_backward": training.forward_backward,
        "optim_step": training.optim_step,
        "save_weights_for_sampler": training.save_weights_for_sampler,
        "save_weights": training.save_weights,
        "save_weights_external": training.save_weights_external,
        "load_weights": training.load_weights,
        "create_custom_loss": custom_losses.create_custom_loss,
        "create_model": training.create_model,
        "unload_model": training.unload_model,
        "get_info": training.get_info,
        "create_sampling_session": sampling.create_sampling_session,
        "create_session": listing.create_session,
        "session_heartbeat": listing.heartbeat,
        "sessions/{id}/finish": listing.finish_session,
        "sessions/search": listing.search_sessions,
        "cancel_future": listing.cancel_future,
        "weights_info": checkpoints.weights_info,
        "copy_weights": checkpoints.copy_weights,
        f"{_CHECKPOINT}/publish": checkpoints.publish,
        "auth/token": account.token,
        "client/config": _configure,
        "client/dynamic_config": lambda _: types.ClientDynamicConfigResponse(
            sample_cancel_enabled=True
        ),
        "telemetry": lambda _: types.TelemetryResponse(status="accepted"),
    },
    "GET": {
        "sessions": listing.list_sessions,
        "sessions/{id}": listing.get_session,
        "sessions/{id}/trace_export": listing.export_trace,
        "samplers/{id}": sampling.get_sampler,
        "training_runs": listing.training_runs,
        "training_runs/{id}": lambda backend, run_id: backend.runs.describe(run_id),
        "training_runs/{id}/checkpoints": checkpoints.checkpoints_of,
        f"{_CHECKPOINT}/external_weights_urls": external.urls,
        "checkpoints": checkpoints.all_checkpoints,
        "auth/apikey/me": account.api_key,
        "get_server_capabilities": listing.capabilities,
        "healthz": lambda _: types.HealthResponse(status="ok"),
    },
    "PUT": {
        f"{_CHECKPOINT}/ttl": checkpoints.set_ttl,
        "sessions/{id}/project": listing.assign_project,
    },
    "DELETE": {
        _CHECKPOINT: checkpoints.delete,
        f"{_CHECKPOINT}/publish": checkpoints.unpublish,
        "auth/apikey/me": account.delete_api_key,
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
    routes.append(route("GET", f"{SIGNED}{{path:path}}", account.download))
    routes += inference_routes(ServedModels(backend), answered)
    app: ASGIApp = Starlette(routes=routes, exception_handlers=ON_ERROR)
    if key is not None:
        is_key, signed = key_checker(key), backend.signer.has_signed  # an identity given for it
        app = require_key(app, lambda given: is_key(given) or signed(given), free=SIGNED)
    if any(backend.disturbances.faults.of_requests.values()):
        app = FaultyApp(app, backend.disturbances, backend.restart)
    return app


def _answer(result: BaseModel | Reply | Response | None) -> Response:
    if isinstance(result, Response):
        return result
    if isinstance(result, Reply):
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
        raise Refused(400, f"The {part} is not as it should be: {what}.") from error
