"""The paths of the protocol: read and check a body, call its handler, write the answer."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, get_type_hints

from attrs import define, field, frozen
from pydantic import BaseModel, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp
from tinker import types

from rlc.catalog import find_model
from rlc.chat import EnvError, fitting_renderer
from rlc.service.chats.model import ChatModel
from rlc.service.engine.checkpoints import SCHEME
from rlc.service.engine.service import LocalSamplingClient
from rlc.service.http import (
    JSON,
    LARGEST_BODY,
    ON_ERROR,
    RefusedRequest,
    key_checker,
    off_loop,
    read_content,
    require_key,
    require_local_host,
)
from rlc.service.inference.endpoint import Caller, Observer
from rlc.service.inference.routes import inference_routes
from rlc.service.interface import SampledToken, ServiceError, TokenMask
from rlc.service.server import account_requests, client_requests
from rlc.service.server.backend import SIGNED, Backend, Handlers, ServedModel
from rlc.service.server.faults import FaultyApp
from rlc.service.server.futures import EncodedReply
from rlc.service.server.runs import TINKER, engine_path, path_of
from rlc.service.server.wire import PROTOBUF, Pass, read_pass

_MOST_OPENED = 16  # models whose weights are kept
_NOT_FOUND = "model_not_found"
_RENDERER = "renderer_name"  # where the cookbook notes it in the metadata of a run
_OWNER = "inference"  # as which usage is counted: these requests belong to no session


@define(eq=False)
class ServedModels:
    """The models of a server by their names: a base model's, a checkpoint's path, or both as
    ``base;path``."""

    backend: Backend
    # By source or path, and when it was saved; those used longest ago come first.
    _opened: OrderedDict[tuple[str, float], asyncio.Future[LocalSamplingClient]] = field(
        factory=OrderedDict, init=False
    )
    _renderers: dict[tuple[str, tuple[str, ...]], tuple[Any, str]] = field(factory=dict, init=False)

    def names(self) -> dict[str, float]:
        saved = [c for c in self.backend.runs.checkpoints() if c.checkpoint_type != "external"]
        bases = dict.fromkeys(self.backend.served, 0.0)
        return bases | {c.tinker_path: c.time.timestamp() for c in saved}

    async def find(self, name: str, caller: Caller) -> ChatModel:  # noqa: ARG002 (all have one key)
        """Return a model. Raise RefusedRequest (404) if there is none of the name."""
        base, _, path = name.rpartition(";")
        if not path.startswith(TINKER):
            served = self._served(name)
            client = await self._open((served.source, 0.0), base_model=served.source)
            return self._model(name, served, client)
        try:
            saved = self.backend.engine.store.find(engine_path(path))
            run = self.backend.runs.find(path.removeprefix(TINKER).split("/")[0])
            client = await self._open((path, saved.saved_at), model_path=engine_path(path))
        except (ServiceError, RefusedRequest) as error:
            message = str(error).replace(SCHEME, TINKER)
            raise RefusedRequest(404, message, param="model", code=_NOT_FOUND) from error
        served = self._served(self.backend.name_of(run.base_model))
        if base not in ("", served.name):
            raise RefusedRequest(400, f"{path} is of {served.name}, not of {base}.", param="model")
        return self._model(name, served, client, (run.user_metadata or {}).get(_RENDERER))

    async def _open(self, key: tuple[str, float], **named: Any) -> LocalSamplingClient:
        """Open weights once for all requests that name them, so that these share a batch."""
        if key not in self._opened:
            opening = self.backend.engine.create_sampling_client(**named)
            self._opened[key] = asyncio.ensure_future(opening)
            while len(self._opened) > _MOST_OPENED:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        try:
            return await asyncio.shield(self._opened[key])
        except ServiceError:
            self._opened.pop(key, None)
            raise

    def _served(self, name: str) -> ServedModel:
        if name not in self.backend.served:
            raise RefusedRequest(
                404,
                f"The model {name!r} does not exist here: there are "
                f"{', '.join(self.backend.served)}, and checkpoints by their tinker:// paths.",
                param="model",
                code=_NOT_FOUND,
            )
        return self.backend.served[name]

    def _model(
        self,
        name: str,
        served: ServedModel,
        client: LocalSamplingClient,
        trained: str | None = None,
    ) -> ChatModel:
        known = [model for n in (served.name, served.source) if (model := find_model(n))]
        own = tuple(renderer for model in known for renderer in model.renderers)
        names = tuple(dict.fromkeys((*([trained] if trained else []), *own)))
        tokenizer, facts = client.get_tokenizer(), served.facts
        if (served.name, names) not in self._renderers:
            self._renderers[served.name, names] = _fitting(tokenizer, served.name, names)
        renderer, why = self._renderers[served.name, names]
        counted: Any = _CountedClient(client, self.backend, served.name)
        ends = facts.end_tokens
        return ChatModel(
            name, served.name, counted, tokenizer, renderer, facts.context, ends, no_renderer=why
        )


def _fitting(tokenizer: Any, base: str, names: tuple[str, ...]) -> tuple[Any, str]:
    why = (
        f"rlc does not know how chats are written for {base}; serve the model under the name that "
        "it has in `rlc catalog --kind base` (rlc serve --model NAME=FOLDER)"
    )
    for name in names:
        try:
            return fitting_renderer(tokenizer, name), ""
        except EnvError as error:
            why = str(error)
    return None, why


@frozen(eq=False)
class _CountedClient:
    """A client of the engine whose requests are delayed as the server's, and counted."""

    client: LocalSamplingClient
    backend: Backend
    base_model: str

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        *,
        on_token: Callable[[SampledToken], None] | None = None,
        masks: Callable[[], TokenMask] | None = None,
        **scores: Any,
    ) -> types.SampleResponse:
        await asyncio.sleep(self.backend.disturbances.delay("sample"))
        sampling: Awaitable[types.SampleResponse] = self.client.sample(
            prompt, num_samples, sampling_params, on_token=on_token, masks=masks, **scores
        )
        response = await sampling
        self.backend.used_samples(_OWNER, self.base_model, prompt, response)
        return response


_API = "/api/v1"
# Bytes of a body, by what it is: those of samples have prompts and targets, token by token.
_LARGEST: dict[type[Any], int] = {Pass: LARGEST_BODY, types.SampleRequest: 8 * 2**20}
_LARGEST_OTHER = 2 * 2**20
_MOST_OBJECTS = 32_768  # of JSON, in a body; pydantic lets nothing else run while it reads them
_CHECKPOINT = "training_runs/{id}/checkpoints/{kind}/{name}"


def _configure(backend: Backend) -> Response:
    """Tell the SDK to exchange its key for an identity, by which it knows who it is. It never
    closes the connection over which it asks this, so the server does."""
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
        "weights_info": account_requests.weights_info,
        "copy_weights": account_requests.copy_weights,
        f"{_CHECKPOINT}/publish": lambda backend, *parts: account_requests.set_public(
            backend, path_of(*parts), True
        ),
        "auth/token": lambda backend: types.AuthTokenResponse(jwt=backend.signer.token()),
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
        "training_runs/{id}/checkpoints": lambda backend, run_id: types.CheckpointsListResponse(
            checkpoints=backend.runs.checkpoints(run_id)
        ),
        f"{_CHECKPOINT}/external_weights_urls": account_requests.urls,
        "checkpoints": account_requests.all_checkpoints,
        "auth/apikey/me": account_requests.api_key,
        "get_server_capabilities": account_requests.capabilities,
        "healthz": lambda _: types.HealthResponse(status="ok"),
    },
    "PUT": {
        f"{_CHECKPOINT}/ttl": account_requests.set_ttl,
        "sessions/{id}/project": account_requests.assign_project,
    },
    "DELETE": {
        _CHECKPOINT: account_requests.delete,
        f"{_CHECKPOINT}/publish": lambda backend, *parts: account_requests.set_public(
            backend, path_of(*parts), False
        ),
        "auth/apikey/me": account_requests.delete_api_key,
    },
}


def build_app(
    backend: Backend, key: str | None = None, answered: Observer | None = None
) -> ASGIApp:
    """Return the ASGI application. With ``key``, requests must carry it, as ``X-API-Key`` or
    ``Authorization: Bearer``; without one they must be for this machine by name. ``answered`` is
    called with each answer of a model."""

    def route(method: str, address: str, handler: Callable[..., Any]) -> Route:
        wanted = get_type_hints(handler)

        async def endpoint(request: Request) -> Response:
            given: dict[str, Any] = {}
            if "request" in wanted:
                given["request"] = await _read(backend, request, wanted["request"])
            if "query" in wanted:
                given["query"] = request.query_params
                if isinstance(kind := wanted["query"], type) and issubclass(kind, BaseModel):
                    with _explaining("query"):
                        given["query"] = kind.model_validate(dict(request.query_params))
            if "headers" in wanted:
                given["headers"] = request.headers
            if "base_url" in wanted:
                given["base_url"] = str(request.base_url)
            try:
                result = handler(backend, *request.path_params.values(), **given)
                if inspect.isawaitable(result):
                    result = await result
            except (RefusedRequest, ServiceError) as error:
                asked = given.get("request")
                number = getattr(asked, "model_id", None), getattr(asked, "seq_id", None)
                backend.refuse_in_order(*number, error)
                raise
            if isinstance(result, Response):
                return result
            if isinstance(result, EncodedReply):
                return Response(result.content, result.status, media_type=result.content_type)
            answer = "{}" if result is None else result.model_dump_json()
            return Response(answer, media_type=JSON)

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
    if key is None:
        app = require_local_host(app)
    else:
        is_key, signed = key_checker(key), backend.signer.has_signed  # an identity given for it
        app = require_key(app, lambda given: is_key(given) or signed(given), free=SIGNED)
    if any(backend.disturbances.faults.of_requests.values()):
        app = FaultyApp(app, backend.disturbances, backend.restart)
    return app


async def _read(backend: Backend, request: Request, kind: type[Any]) -> Any:
    """Read a body. Raise RefusedRequest if it is not of a kind; if it names the model and its own
    number, it counts as answered."""
    content_type, largest = PROTOBUF if kind is Pass else JSON, _LARGEST.get(kind, _LARGEST_OTHER)
    content = await read_content(request, content_type, largest)
    if kind is Pass:
        return await off_loop(len(content), partial(read_pass, content))
    if content.count(b"{") > _MOST_OBJECTS:
        raise RefusedRequest(413, f"The body has more than {_MOST_OBJECTS:,} objects.")
    try:
        with _explaining("body"):
            return await off_loop(len(content), partial(kind.model_validate_json, content))
    except RefusedRequest as error:
        with suppress(ValueError, RecursionError):
            given = json.loads(content)
            if isinstance(given, dict):
                backend.refuse_in_order(given.get("model_id"), given.get("seq_id"), error)
        raise


@contextmanager
def _explaining(part: str) -> Iterator[None]:
    """Raise RefusedRequest (400) in place of pydantic's ValidationError."""
    try:
        yield
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        what = f"{where}: {first['msg']}" if where else first["msg"]
        raise RefusedRequest(400, f"The {part} is not as it should be: {what}.") from error
