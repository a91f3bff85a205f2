"""The SDK's requests to a server of SkyRL.

What differs, and is translated: the form of passes and samples (``skyrl``), failures (the SDK
repeats what SkyRL answers with 409 or 500 for ever), polls (SkyRL holds them longer than the SDK
waits), names of sequences and metrics, paths of samplers, models that are created from a state,
and averages (``models``).
"""

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from typing import Any, get_type_hints

import orjson
from attrs import define, field
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from tinker import types

from rlc.catalog import TINY, model_names
from rlc.service import tiny
from rlc.service.bridge.models import STATUSES, Bridge, OrderedRequest, Reply, renamed, sentence
from rlc.service.bridge.skyrl import API, SkyRL, UnknownError
from rlc.service.bridge.sums import ModelPass
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
    serving,
)
from rlc.service.interface import ServiceError
from rlc.service.server.wire import PROTOBUF, Pass, read_pass, write_output, write_sample

Said = dict[str, Any]  # a body that is passed on as it is


def _in_json(result: BaseModel) -> Reply:
    return result.model_dump_json().encode(), JSON


def _passed(output: types.ForwardBackwardOutput) -> Reply:
    return write_output(output), PROTOBUF


def _as_known(name: str) -> str:
    """Return the catalogue's name of a model that a server may have from a folder: by its end."""
    end = name.rstrip("/").rpartition("/")[2]
    return next((one for one in model_names() if one.rpartition("/")[2] == end), name)


def _sampler_path(path: str, *, theirs: bool) -> str:
    """Return the path of weights for sampling as SkyRL writes it, or as the SDK does."""
    model, _, name = path.removeprefix("tinker://").partition("/")
    if theirs:
        return f"tinker://{model}/{name.removeprefix('sampler_weights/')}"
    return path if "/" in name else f"tinker://{model}/sampler_weights/{name}"


async def _served(bridge: Bridge) -> list[str]:
    """Return the server's names of its models."""
    said = (await bridge.skyrl.ask("GET", "/get_server_capabilities")).json()["supported_models"]
    return [str(one["model_name"]) for one in said]


async def _capabilities(bridge: Bridge) -> types.GetServerCapabilitiesResponse:
    served = await _served(bridge)
    names = dict.fromkeys([*map(_as_known, served), *served])
    return types.GetServerCapabilitiesResponse(
        supported_models=[types.SupportedModel(model_name=name) for name in names]
    )


async def _theirs(bridge: Bridge, base: str) -> str:
    """Return the server's name of a model. Raise RefusedRequest if it does not serve it: SkyRL
    would take any name for its one model."""
    served = await _served(bridge)
    found = next((name for name in served if base in (name, _as_known(name))), None)
    if found is None:
        raise RefusedRequest(404, f"SkyRL has no model {base} here: it has {', '.join(served)}.")
    return found


async def _create_model(
    bridge: Bridge, request: types.CreateModelRequest
) -> types.UntypedAPIFuture:
    name = f"{request.session_id}:train:{request.model_seq_id}"
    config = request.lora_config
    if config is None:
        raise RefusedRequest(400, "SkyRL trains LoRA adapters here: give a lora_config.")
    if not (config.train_mlp and config.train_attn and config.train_unembed):
        raise RefusedRequest(400, "SkyRL chooses the layers of an adapter itself.")
    base = await _theirs(bridge, request.base_model)

    async def create() -> Reply:
        theirs = await _created(bridge, request.session_id, base, config.rank, config.seed)
        bridge.add(name, theirs, request.session_id)
        return _in_json(types.CreateModelResponse(model_id=theirs))

    return _promised(bridge, name, create)


async def _created(bridge: Bridge, session: str, base: str, rank: int, seed: int | None) -> str:
    body = {
        "session_id": session,
        "base_model": base,
        "lora_config": {"rank": rank, "seed": seed},
    }
    made = (await bridge.skyrl.ask("POST", "/create_model", body)).json()
    await bridge.skyrl.result(str(made["request_id"]))
    return str(made["model_id"])


def _promised(
    bridge: Bridge, name: str, work: Callable[[], Coroutine[Any, Any, Reply]], **more: Any
) -> types.UntypedAPIFuture:
    """Promise what is done once for a name."""
    if name not in bridge.promises:
        bridge.promises.make(work(), name)
    return types.UntypedAPIFuture(request_id=name, **more)


async def _load_weights(
    bridge: Bridge, request: types.LoadWeightsRequest
) -> types.UntypedAPIFuture:
    """Load a state into a model, or (with a session) as a new model, of its own rank. SkyRL loads
    into new models alone, so one that has been used gets a new one behind it."""
    asked = {"tinker_path": request.path}
    if request.model_id is not None:
        model = bridge.model(request.model_id)

        async def send() -> Awaitable[Any]:
            state = (await bridge.skyrl.ask("POST", "/weights_info", asked)).json()
            loaded = await _restored(bridge, model.session, state, request)
            return bridge.replace(model, loaded)

        answer = types.LoadWeightsResponse(path=request.path, model_id=request.model_id)
        turn = OrderedRequest(send)
        made = bridge.in_turn(model, request.seq_id, turn, lambda _: _in_json(answer))
        return types.UntypedAPIFuture(request_id=made)
    session = request.session_id
    if session is None or request.model_seq_id is None:
        problem = "load_weights needs a model_id, or a session_id and a model_seq_id."
        raise RefusedRequest(400, problem)
    name = f"{session}:train:{request.model_seq_id}"
    state = (await bridge.skyrl.ask("POST", "/weights_info", asked)).json()

    async def load() -> Reply:
        bridge.add(name, await _restored(bridge, session, state, request), session)
        return _in_json(types.LoadWeightsResponse(path=request.path, model_id=name))

    return _promised(bridge, name, load)


async def _restored(
    bridge: Bridge, session: str, state: Mapping[str, Any], request: types.LoadWeightsRequest
) -> str:
    """Return SkyRL's id of a new model with a state. Raise UnknownError if its files are gone."""
    base, rank = str(state["base_model"]), int(state["lora_rank"])
    theirs = await _created(bridge, session, base, rank, None)
    body = {"model_id": theirs, "path": request.path, "optimizer": request.optimizer}
    try:
        await bridge.skyrl.result(await bridge.skyrl.promised("/load_weights", body))
    except ServiceError as error:
        await bridge.unload(theirs)
        if "checkpoint not found" in str(error):  # there is a row of it
            raise UnknownError(error.message) from error
        raise
    return theirs


async def _forward_backward(bridge: Bridge, request: Pass) -> types.UntypedAPIFuture:
    model = bridge.model(request.model_id)
    data = await asyncio.to_thread(request.read_data)
    given = ModelPass(request.loss_fn, request.config, data)
    if request.forward_only:
        turn = OrderedRequest(partial(bridge.forward, model, given))
    else:
        turn = OrderedRequest(partial(bridge.backward, model, given), given)
    return types.UntypedAPIFuture(request_id=bridge.in_turn(model, request.seq_id, turn, _passed))


async def _optim_step(bridge: Bridge, request: types.OptimStepRequest) -> types.UntypedAPIFuture:
    model, params = bridge.model(request.model_id), request.optim_params

    async def send() -> Awaitable[types.OptimStepResponse]:
        if not isinstance(params, types.AdamParams):
            raise ServiceError(f"SkyRL has AdamW only, not {params.type!r}")
        said = params.model_dump()
        if said.pop("grad_clip_norm", 0.0):
            raise ServiceError("SkyRL clips no gradient: leave `grad_clip_norm` at 0")
        said.pop("type", None)
        body = {"model_id": model.theirs, "adam_params": said, "seq_id": model.number()}
        repeatable = bridge.skyrl.in_protobuf  # it counts what is repeated once, as of 0.4
        made = await bridge.skyrl.promised("/optim_step", body, repeatable=repeatable)
        return stepped(made)

    async def stepped(made: str) -> types.OptimStepResponse:
        return types.OptimStepResponse(
            metrics=renamed((await bridge.skyrl.result(made)).get("metrics"))
        )

    turn = OrderedRequest(send, steps=True)
    return types.UntypedAPIFuture(request_id=bridge.in_turn(model, request.seq_id, turn, _in_json))


async def _save_weights(
    bridge: Bridge, request: types.SaveWeightsRequest
) -> types.UntypedAPIFuture:
    model = bridge.model(request.model_id)

    async def send() -> Awaitable[types.SaveWeightsResponse]:
        path = f"/training_runs/{model.theirs}/checkpoints/weights/{request.path}"
        if request.overwrite and bridge.skyrl.deletes:
            with suppress(ServiceError):  # there is none yet
                await bridge.skyrl.ask("DELETE", path)
        body = {"model_id": model.theirs, "path": request.path}
        return saved(await bridge.skyrl.promised("/save_weights", body))

    async def saved(made: str) -> types.SaveWeightsResponse:
        return types.SaveWeightsResponse(path=(await bridge.skyrl.result(made))["path"])

    made = bridge.in_turn(model, request.seq_id, OrderedRequest(send), _in_json)
    return types.UntypedAPIFuture(request_id=made)


async def _save_for_sampler(
    bridge: Bridge, request: types.SaveWeightsForSamplerRequest
) -> types.UntypedAPIFuture:
    model, number = bridge.model(request.model_id), request.sampling_session_seq_id
    if getattr(request, "kind", None) == "inflight":  # as of SDK 0.37
        raise RefusedRequest(400, "SkyRL has no samplers that follow their trainer.")

    async def send() -> Awaitable[Any]:
        seq_id = model.number()
        body: dict[str, Any] = {"model_id": model.theirs, "path": request.path, "seq_id": seq_id}
        if number is not None:
            body["sampling_session_seq_id"] = number
        made = await bridge.skyrl.promised("/save_weights_for_sampler", body)
        return saved(made, f"ss{number}_seq{seq_id}")

    async def saved(made: str, snapshot: str) -> Any:
        said = await bridge.skyrl.result(made)
        if number is None:
            return types.SaveWeightsForSamplerResponse(
                path=_sampler_path(said["path"], theirs=False)
            )
        await bridge.superseded(model, snapshot)
        return types.SaveWeightsForSamplerResponseInternal(
            sampling_session_id=said["sampling_session_id"]
        )

    made = bridge.in_turn(model, request.seq_id, OrderedRequest(send), _in_json)
    return types.UntypedAPIFuture(request_id=made)


async def _create_sampling_session(
    bridge: Bridge, request: types.CreateSamplingSessionRequest
) -> types.CreateSamplingSessionResponse:
    body = request.model_dump(exclude_none=True)
    if request.model_path is not None:
        body["model_path"] = _sampler_path(request.model_path, theirs=True)
        body.pop("base_model", None)
    elif request.base_model is not None:
        body["base_model"] = await _theirs(bridge, request.base_model)
    said = (await bridge.skyrl.ask("POST", "/create_sampling_session", body)).json()
    return types.CreateSamplingSessionResponse(sampling_session_id=said["sampling_session_id"])


_OTHER_LOGPROBS = ("topk_sample_logprobs", "prompt_alt_tokens_k", "target_prompt_logprobs")


async def _sample(bridge: Bridge, said: Said) -> types.UntypedAPIFuture:
    """Send a request as it is, without a look at what the server reads itself."""
    if any(map(said.get, _OTHER_LOGPROBS)):
        raise RefusedRequest(400, "SkyRL reports no logprobs but those of the tokens themselves.")
    if (session := said.get("sampling_session_id")) is None or said.get("seq_id") is None:
        raise RefusedRequest(400, "A sample needs a sampling_session_id and a seq_id.")
    name = f"{session}/{said['seq_id']}"
    names = [f"{name}-{i}" for i in range(said.get("num_samples", 1))]
    params = said.get("sampling_params", {})
    if isinstance(stop := params.get("stop"), str):
        params["stop"] = [stop]

    async def sample() -> Reply:
        made, length = await bridge.skyrl.promised("/asample", said), None
        if said.get("prompt_logprobs"):
            length = types.ModelInput.model_validate(said["prompt"]).length
        answer = await bridge.skyrl.sampled(made, length, said.get("prompt_logprobs_last_n"))
        return (answer if isinstance(answer, bytes) else write_sample(answer)), PROTOBUF

    return _promised(bridge, name, sample, sample_sequence_ids=names)


async def _retrieve(bridge: Bridge, request: types.FutureRetrieveRequest) -> Response:
    return await bridge.promises.answer(request.request_id)


async def _get_info(bridge: Bridge, request: types.GetInfoRequest) -> types.GetInfoResponse:
    model = bridge.model(request.model_id)
    said = (await bridge.skyrl.ask("POST", "/get_info", {"model_id": model.theirs})).json()
    facts = said["model_data"]
    base = _as_known(facts["base_model"])
    tokenizer = str(tiny.path()) if base == TINY else None
    return types.GetInfoResponse(
        type="get_info",
        model_id=request.model_id,
        model_name=base,
        is_lora=True,
        lora_rank=(facts.get("lora_config") or {}).get("rank"),
        model_data=types.ModelData(model_name=base, tokenizer_id=tokenizer),
    )


async def _finish(bridge: Bridge, session: str) -> Response:
    await bridge.forget(session)
    return Response("{}", media_type=JSON)


async def _get_run(bridge: Bridge, name: str) -> Response:
    theirs = bridge.models[name].theirs if name in bridge.models else name
    said = (await bridge.skyrl.ask("GET", f"/training_runs/{theirs}")).json()
    return _with_base(said)


async def _weights_info(bridge: Bridge, said: Said) -> Response:
    return _with_base((await bridge.skyrl.ask("POST", "/weights_info", said)).json())


async def _get_sampler(bridge: Bridge, name: str) -> Response:
    return _with_base((await bridge.skyrl.ask("GET", f"/samplers/{name}")).json())


def _with_base(said: Said) -> Response:
    return JSONResponse({**said, "base_model": _as_known(said["base_model"])})


async def _list_checkpoints(bridge: Bridge, run: str) -> Response:
    return JSONResponse((await bridge.skyrl.ask("GET", f"/training_runs/{run}/checkpoints")).json())


async def _delete(bridge: Bridge, run: str, kind: str, name: str) -> Response:
    if not bridge.skyrl.deletes:
        raise RefusedRequest(405, "This version of SkyRL deletes no checkpoints.")
    await bridge.skyrl.ask("DELETE", f"/training_runs/{run}/checkpoints/{kind}/{name}")
    return Response(status_code=204)


async def _create_session(bridge: Bridge, said: Said) -> Response:
    return JSONResponse((await bridge.skyrl.ask("POST", "/create_session", said)).json())


async def _heartbeat(bridge: Bridge, said: Said) -> Response:
    return JSONResponse((await bridge.skyrl.ask("POST", "/session_heartbeat", said)).json())


async def _is_up(bridge: Bridge) -> types.HealthResponse:
    await bridge.skyrl.ask("GET", "/healthz")
    return types.HealthResponse(status="ok")


def _config(_: Bridge) -> types.ClientConfigResponse:
    """Have the chunks of a pass sent in their order, and custom losses computed by the SDK."""
    return types.ClientConfigResponse(pjwt_auth_enabled=False, parallel_fwdbwd_chunks=False)


# Handlers by method and path. They get the bridge, the parts of the path, and as ``request`` or
# ``said`` the body: of the parameter's type, or as it is.
_HANDLERS: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("POST", "asample"): _sample,
    ("POST", "retrieve_future"): _retrieve,
    ("POST", "forward_backward"): _forward_backward,
    ("POST", "optim_step"): _optim_step,
    ("POST", "save_weights_for_sampler"): _save_for_sampler,
    ("POST", "save_weights"): _save_weights,
    ("POST", "load_weights"): _load_weights,
    ("POST", "create_model"): _create_model,
    ("POST", "get_info"): _get_info,
    ("POST", "create_sampling_session"): _create_sampling_session,
    ("POST", "create_session"): _create_session,
    ("POST", "session_heartbeat"): _heartbeat,
    ("POST", "sessions/{id}/finish"): _finish,
    ("POST", "weights_info"): _weights_info,
    ("POST", "client/config"): _config,
    ("POST", "telemetry"): lambda _: types.TelemetryResponse(status="accepted"),
    ("GET", "get_server_capabilities"): _capabilities,
    ("GET", "healthz"): _is_up,
    ("GET", "samplers/{id}"): _get_sampler,
    ("GET", "training_runs/{id}"): _get_run,
    ("GET", "training_runs/{id}/checkpoints"): _list_checkpoints,
    ("DELETE", "training_runs/{id}/checkpoints/{kind}/{name}"): _delete,
}


def build_bridge(url: str, key: str | None = None) -> tuple[ASGIApp, Callable[[], Awaitable[None]]]:
    """Return the ASGI application in front of the SkyRL server at ``url``, and what ends its
    connections. It connects when it is first asked. With ``key``, requests must carry it; without
    one they must be for this machine by name."""
    bridge = Bridge(SkyRL(url))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await _respond(bridge, request)
        except Exception as error:
            kind = next(one for one in type(error).__mro__ if one in _ON_ERROR)
            response = await _ON_ERROR[kind](request, error)
        await response(scope, receive, send)

    if key is None:
        return require_local_host(app), bridge.close
    return require_key(app, key_checker(key)), bridge.close


async def _respond(bridge: Bridge, request: Request) -> Response:
    # Starlette's router and its layers around it would be a fifth of what a bridge computes.
    handler, parts = _found(request.method, request.scope["path"].removeprefix(f"{API}/"))
    await bridge.ready()
    given = {name: await _read(request, kind) for name, kind in _bodies(handler).items()}
    result = handler(bridge, *parts, **given)
    if inspect.isawaitable(result):
        result = await result
    if isinstance(result, Response):
        return result
    return Response(result.model_dump_json(), media_type=JSON)


def _found(method: str, path: str) -> tuple[Callable[..., Any], Sequence[str]]:
    if (exact := _HANDLERS.get((method, path))) is not None:
        return exact, ()
    found = {
        of: (handler, match.groups())
        for (of, address), handler in _HANDLERS.items()
        if (match := re.fullmatch(re.sub(r"{\w+}", "([^/]+)", address), path))
    }
    if method not in found:
        raise HTTPException(405 if found else 404)
    return found[method]


@cache
def _bodies(handler: Callable[..., Any]) -> Mapping[str, Any]:
    """Return the type of the body that a handler wants, if it wants one, by its name."""
    hints = get_type_hints(handler)
    return {name: hints[name] for name in ("request", "said") if name in hints}


def _with_status(status: int) -> Callable[..., Awaitable[Response]]:
    async def respond(_: Request, error: ServiceError) -> Response:
        return JSONResponse({"detail": sentence(error)}, status)

    return respond


_ON_ERROR: Mapping[type, Any] = {
    **ON_ERROR,
    **{kind: _with_status(status) for kind, status in STATUSES.items()},
}


async def _read(request: Request, kind: type[Any]) -> Any:
    """Read a body. Raise RefusedRequest if it is not of a kind."""
    content = await read_content(request, PROTOBUF if kind is Pass else JSON, LARGEST_BODY)
    read = partial(read_pass, content) if kind is Pass else partial(_parsed, kind, content)
    return await off_loop(len(content), read)


def _parsed(kind: type[Any], content: bytes) -> Any:
    try:
        return orjson.loads(content) if kind == Said else kind.model_validate_json(content)
    except (ValidationError, orjson.JSONDecodeError) as error:
        raise RefusedRequest(400, f"The body is not as it should be: {error}") from error


_OPENING = threading.Lock()


@define(eq=False)
class _Running:
    """A bridge on a thread of its own, which wakes for requests alone. ``opened`` are its address
    and what ends it."""

    url: str
    thread: threading.Thread = field(init=False)
    opened: Future[tuple[str, Callable[[], object]]] = field(factory=Future, init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=asyncio.run, args=[self._serve()], daemon=True)
        self.thread.start()

    async def _serve(self) -> None:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        app, close = build_bridge(self.url)
        try:
            async with serving(app, closing=close) as address:
                self.opened.set_result((address, partial(loop.call_soon_threadsafe, ended.set)))
                await ended.wait()
        except ServiceError as error:  # it cannot listen
            self.opened.set_exception(error)

    def close(self) -> None:
        self.opened.result()[1]()
        self.thread.join()


_BRIDGES: dict[str, _Running] = {}  # those of this process, by the address of the server


def bridged(url: str) -> str:
    """Return the address of a bridge to the SkyRL server at ``url``, on a thread of this process
    that ends with it."""
    with _OPENING:
        if url not in _BRIDGES:
            running = _Running(url)
            running.opened.result()
            _BRIDGES[url] = running
        return _BRIDGES[url].opened.result()[0]


def close_bridges() -> None:
    """End the bridges of this process."""
    with _OPENING:
        while _BRIDGES:
            _BRIDGES.popitem()[1].close()
