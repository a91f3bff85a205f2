"""A stand-in for the Tinker server of SkyRL: its paths, bodies and failures over rlc's engine.

Written from the code of the packages skyrl 0.3.0 (JSON) and 0.4.0 (protobuf), whose backend for JAX
was run beside it: it divides the loss of a datum by the sum of its weights and the gradient of a
step by the number of its datums (`skyrl_losses`), has one slot of weights for a model, into which
it loads what is sampled from, and unloads the models of a session that it forgets.

``backend="fsdp"`` has the form of the answers of the backends FSDP and Megatron, which need GPUs:
this is recorded from their code, and was never compared with them. They sum; `forward` reports
logprobs alone, `forward_backward` the sum as ``total_loss:sum``, and a step the norm of its
gradient as ``skyrl.ai/grad_norm``.

Models, requests and checkpoints are in a database, which outlives the process of a server
(`SkyRLServer.restart`); what is said of `SkyRLServer` makes it misbehave.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Thread
from typing import Any, Literal

import numpy as np
from attrs import define, field, frozen
from plain_service import PlainSamplingClient, PlainService, PlainTrainingClient
from skyrl_losses import array, divisor, terms
from skyrl_models import Saved, ServedModel, model_of
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tinker import types
from tinker.proto import tinker_public_pb2 as pb

from rlc.service.engine.service import LocalSamplingClient, LocalService, LocalTrainingClient
from rlc.service.http import Server
from rlc.service.interface import ServiceError
from rlc.service.server.wire import PROTOBUF, read_pass, write_sample
from rlc.service.sockets import LOOPBACK, bind

BASE = "/models/tiny"
_API = "/api/v1"
_KNOWN_LOSSES = ("cross_entropy", "importance_sampling", "ppo", "cispo", "ppo_critic", "dppo")
_OF_JAX = _KNOWN_LOSSES[:4]
Backend = Literal["jax", "fsdp"]
Body = dict[str, Any]
Sampler = LocalSamplingClient | PlainSamplingClient


class Refused(Exception):  # noqa: N818 (what FastAPI calls HTTPException)
    """A status, and what the server says."""

    def __init__(self, status: int, detail: Any) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


@define(eq=False)
class Future:
    """A request that is answered later. ``result`` is an answer, or an error's text."""

    kind: str
    model: str
    body: Any
    result: Any = None
    failed: bool = False
    done: asyncio.Event = field(factory=asyncio.Event)


@define(eq=False)
class Database:
    """What outlives a process: rows of sessions, models, futures, samplers and checkpoints."""

    sessions: set[str] = field(factory=set)
    models: dict[str, Body] = field(factory=dict)
    futures: dict[int, Future] = field(factory=dict)
    samplers: dict[str, Body] = field(factory=dict)
    checkpoints: dict[tuple[str, str, str], Saved | None] = field(factory=dict)  # None: not yet
    numbers: dict[tuple[str, int], int] = field(factory=dict)  # futures, by the client's numbers
    ids: Iterator[int] = field(factory=lambda: itertools.count(1))


@define(eq=False)
class Slot:
    """The place of a model in the engine. ``loaded``: the snapshot that was loaded last;
    ``datums``: those of the gradient so far."""

    client: LocalTrainingClient | PlainTrainingClient
    loaded: str | None = None
    datums: int = 0

    @property
    def model(self) -> ServedModel:
        return model_of(self.client)

    def passed(self, given: Pass, backward: bool, backend: Backend) -> Body:
        """Compute a pass, on the engine's thread."""
        ones = [_likelihood(datum, np.ones(len(given.targets(datum)))) for datum in given.data]
        told = self.model.run(ones, backward=False)
        logprobs = [array(one["logprobs"]) for one in told]
        losses, slopes = [], []
        for datum, lp_T in zip(given.data, logprobs, strict=True):
            inputs = {name: array(tensor) for name, tensor in datum.loss_fn_inputs.items()}
            loss_T, slope_T = terms(given.loss, given.config, inputs, lp_T)
            losses.append(loss_T)
            slopes.append(slope_T / (divisor(inputs, lp_T) if backend == "jax" else 1.0))
        if backward:
            moved = [_likelihood(d, -s_T) for d, s_T in zip(given.data, slopes, strict=True)]
            self.model.run(moved, backward=True)
            self.datums += len(given.data)
        outputs = [{"logprobs": lp_T} for lp_T in logprobs]
        if backend == "jax":
            for output, loss_T in zip(outputs, losses, strict=True):
                output["elementwise_loss"] = loss_T
        total = sum(float(loss_T.sum()) for loss_T in losses)
        summed = backward and backend == "fsdp"
        return {
            "loss_fn_output_type": "scalar",
            "loss_fn_outputs": [{k: _tensor(v) for k, v in one.items()} for one in outputs],
            "metrics": {"total_loss:sum": total} if summed else {},
        }

    def stepped(self, params: Mapping[str, float], backend: Backend) -> Body:
        if backend == "jax":
            self.model.divide_gradient(max(self.datums, 1))
        self.datums = 0
        stepped = self.model.step(types.AdamParams(**params))
        return {"metrics": {"skyrl.ai/grad_norm": stepped.metrics["grad_norm"]}}  # type: ignore[index]


def _likelihood(datum: types.Datum, weights_T: Any) -> types.Datum:
    inputs: dict[str, Any] = {
        "target_tokens": datum.loss_fn_inputs["target_tokens"],
        "weights": weights_T.astype(np.float32),
    }
    return types.Datum(datum.model_input, inputs)


def _tensor(values: Any) -> Body:
    return {"data": values.tolist(), "dtype": "float32", "shape": [len(values)]}


@frozen(eq=False)
class Pass:
    """A pass as it was sent, in either form."""

    model: str
    seq_id: int | None
    forward_only: bool
    loss: str
    config: Mapping[str, Any] | None
    data: Sequence[types.Datum]

    @classmethod
    def of_json(cls, body: Body, forward_only: bool) -> Pass:
        given = body["forward_input" if forward_only else "forward_backward_input"]
        data = []
        for one in given["data"]:
            tokens = [t for chunk in one["model_input"]["chunks"] for t in chunk["tokens"]]
            inputs: dict[str, Any] = {
                name: np.array(tensor["data"]) for name, tensor in one["loss_fn_inputs"].items()
            }
            data.append(types.Datum(types.ModelInput.from_ints(tokens), inputs))
        loss, config = given["loss_fn"], given["loss_fn_config"]
        return cls(body["model_id"], body.get("seq_id"), forward_only, loss, config, data)

    @classmethod
    def of_protobuf(cls, content: bytes) -> Pass:
        read = read_pass(content)
        return cls(
            read.model_id,
            read.seq_id or None,
            read.forward_only,
            read.loss_fn,
            read.config,
            read.read_data(),
        )

    @staticmethod
    def targets(datum: types.Datum) -> Any:
        return datum.loss_fn_inputs["target_tokens"].to_numpy()


def _in_protobuf(answer: Body) -> bytes:
    """A pass as SkyRL 0.4 writes it: one record of all datums, whose arrays follow one another."""
    message = pb.ForwardBackwardOutput(loss_fn_output_type=answer["loss_fn_output_type"])
    for name, value in answer["metrics"].items():
        message.metrics[name] = value
    outputs = answer["loss_fn_outputs"]
    record = message.loss_fn_outputs.add(num_datums=len(outputs))
    for name in outputs[0]:
        arrays = [np.asarray(one[name]["data"], dtype=np.float32) for one in outputs]
        ends = np.cumsum([0, *(one.nbytes for one in arrays)])
        record.fields[name].data = b"".join(one.tobytes() for one in arrays)
        record.fields[name].offsets = ends.astype(np.int64).tobytes()
        record.fields[name].dtype = pb.DTYPE_FLOAT32
    return bytes(message.SerializeToString())


def _sampled_in_json(answer: types.SampleResponse) -> Body:
    """Samples as SkyRL 0.3 writes them: of a prompt, logprobs without the first token's."""
    known = answer.prompt_logprobs
    sequences = [
        {"stop_reason": one.stop_reason, "tokens": list(one.tokens), "logprobs": list(one.logprobs)}  # type: ignore[arg-type]
        for one in answer.sequences
    ]
    return {"sequences": sequences, "prompt_logprobs": None if known is None else known[1:]}


@define(eq=False)
class Process:
    """One life of a server: what is in its engine, and requests in the order of their arrival."""

    server: SkyRLServer
    slots: dict[str, Slot] = field(factory=dict)
    queue: asyncio.Queue[Future] = field(factory=asyncio.Queue)
    _tasks: set[asyncio.Task[None]] = field(factory=set)
    _begun: bool = False

    @property
    def db(self) -> Database:
        return self.server.database

    def begin(self) -> None:
        """Start to work, in the running loop. What an earlier process left is of models that this
        one does not have."""
        if not self._begun:
            self._begun = True
            for future in self.db.futures.values():
                if not future.done.is_set():
                    future.done = asyncio.Event()
                    self.queue.put_nowait(future)
            self._spawn(self._work())

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        while True:
            future = await self.queue.get()
            try:
                future.result = await self._done(future)
            except (ServiceError, ValueError, KeyError) as error:
                future.result, future.failed = str(error), True
            if not isinstance(future.result, asyncio.Future):
                future.done.set()

    async def _done(self, future: Future) -> Any:
        kind, model, body = future.kind, future.model, future.body
        if kind == "sample":
            return self._sampling(future, await self._sampler(model, body["checkpoint"]))
        if kind == "create_model":
            return await self._create(model, body)
        if kind == "unload_model":
            self.slots.pop(model, None)
            return {"model_id": model, "status": "unloaded", "type": kind}
        if model not in self.slots:
            raise ServiceError(f"Model {model} not loaded (likely stale request from before)")
        slot, engine = self.slots[model], self.server.engine
        if kind == "pass":
            return await self._passed(slot, body)
        if kind == "optim_step":
            step = partial(slot.stepped, body, self.server.backend)
            return await engine.in_turn(lambda _: step())
        if kind == "load_weights":
            source, name, optimizer = body
            saved = self.db.checkpoints[source, "weights", name]
            if (source, "weights", name) in self.server.lost_files:
                raise ValueError(f"Training checkpoint not found in {source}/{name}.tar.gz")
            assert saved is not None
            await engine.in_turn(lambda _: slot.model.load(saved, optimizer))
            return {"type": kind}
        kept, name, answer = body
        state = await engine.in_turn(lambda _: slot.model.saved(kept == "weights"))
        self.db.checkpoints[model, kept, name] = state
        return {"type": kind, **answer}

    async def _passed(self, slot: Slot, given: Pass) -> Any:
        if given.seq_id in self.server.refused_passes:
            raise ValueError("the device is out of memory")
        if given.loss not in _OF_JAX:
            raise ValueError(f"Loss functions ['{given.loss}'] are not supported by the backend")
        work = partial(slot.passed, given, not given.forward_only, self.server.backend)
        answer = await self.server.engine.in_turn(lambda _: work())
        return _in_protobuf(answer) if self.server.in_protobuf else answer

    async def _create(self, model: str, config: Body) -> Body:
        most = self.server.most_models
        if len(self.slots) >= most:
            raise ValueError(f"Maximum number of LoRA adapters ({most}) reached")
        client = await self.server.engine.create_lora_training_client(
            "tiny", config["rank"], config["seed"]
        )
        self.slots[model] = Slot(client)
        return {"model_id": model, "base_model": BASE, "lora_config": config}

    async def _sampler(self, model: str, checkpoint: str) -> Sampler:
        """Load what is sampled from into the slot of its model, unless it was the last."""
        engine = self.server.engine
        if not model:
            return await engine.create_sampling_client(base_model="tiny")
        if model not in self.slots:
            raise ServiceError(f"Model {model} not loaded")
        slot = self.slots[model]
        saved = self.db.checkpoints[model, "sampler_weights", checkpoint]
        if slot.loaded != checkpoint:
            assert saved is not None
            weights: Saved = saved
            await engine.in_turn(lambda _: slot.model.load(weights, optimizer=False))
            slot.loaded = checkpoint
        return await slot.client.save_weights_and_get_sampling_client()

    def _sampling(self, future: Future, client: Sampler) -> asyncio.Future[None]:
        """Sample beside what comes next, as a batch of SkyRL's does."""
        asked, request = asyncio.get_running_loop().create_future(), future.body["request"]

        async def sample() -> None:
            prompt = [t for chunk in request["prompt"]["chunks"] for t in chunk["tokens"]]
            params = types.SamplingParams(**request["sampling_params"])
            given = types.ModelInput.from_ints(prompt), request["num_samples"], params
            try:
                answer = await client.sample(*given, bool(request.get("prompt_logprobs")))
                proto = self.server.in_protobuf
                future.result = write_sample(answer) if proto else _sampled_in_json(answer)
            except ServiceError as error:
                future.result, future.failed = str(error), True
            future.done.set()

        self._spawn(sample())
        return asked


@define(eq=False)
class SkyRLServer:
    """A server on a port of this machine, and what it was asked.

    Args:
        in_protobuf: of version 0.4, which also deletes checkpoints and counts a request that is
            repeated once; else of 0.3.
        most_models: that its engine has room for.
        poll_seconds: for which it holds a poll before it answers 408.
        broken: what is answered at once at an endpoint that begins so: status and body.
        before: what happens once, when an endpoint is asked.
        dropped: how many times the connection breaks after such a request was done.
        refused_passes: numbers of passes that the engine fails at.
        lost_files: of checkpoints whose rows are there.
    """

    engine: LocalService | PlainService
    in_protobuf: bool = True
    backend: Backend = "jax"
    most_models: int = 12
    poll_seconds: float = 300.0
    broken: dict[str, tuple[int, Any]] = field(factory=dict)
    before: dict[str, Callable[[], object]] = field(factory=dict)
    dropped: Counter[str] = field(factory=Counter)
    refused_passes: set[int | None] = field(factory=set)
    lost_files: set[tuple[str, str, str]] = field(factory=set)
    database: Database = field(factory=Database)
    requests: list[tuple[str, Body]] = field(factory=list, init=False)
    statuses: Counter[int] = field(factory=Counter, init=False)
    port: int = field(default=0, init=False)
    process: Process = field(init=False)
    _running: tuple[Server, Thread] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def asked(self, endpoint: str) -> list[Body]:
        return [body for path, body in self.requests if path == endpoint]

    def start(self) -> None:
        self.process = Process(self)
        listening = bind(LOOPBACK, self.port)
        self.port = listening.getsockname()[1]
        server = Server(build_app(self))
        thread = Thread(target=server.serve_on, args=[listening], name="skyrl")
        thread.start()
        server.is_up.wait()
        self._running = server, thread

    def stop(self) -> None:
        """Die: connections break, and nothing listens any more."""
        if self._running is not None:
            server, thread = self._running
            server.should_exit = server.force_exit = True
            thread.join()
            self._running = None

    def restart(self, empty: bool = False) -> None:
        """Come back on the same port, with the database or an empty one."""
        self.stop()
        if empty:
            self.database = Database()
        self.start()

    def forget_sessions(self) -> None:
        """Unload all models, as 300 s after the last heartbeat of their session."""
        self.process.slots.clear()


@contextmanager
def skyrl_server(engine: LocalService | PlainService, **given: Any) -> Iterator[SkyRLServer]:
    """Run a stand-in over an engine until the block ends."""
    server = SkyRLServer(engine, **given)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def build_app(server: SkyRLServer) -> ASGIApp:
    """The application of a process."""
    api, process = Api(server), server.process
    asgi: ASGIApp = Starlette(routes=[Route("/openapi.json", api.openapi), *api.routes()])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        process.begin()
        path = scope["path"].removeprefix(f"{_API}/")
        server.before.pop(path, lambda: None)()
        found = next((a for name, a in server.broken.items() if path.startswith(name)), None)
        answer = asgi if found is None else _said(*found)
        breaks = found is None and server.dropped[path] > 0
        if breaks:
            server.dropped[path] -= 1

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                server.statuses[message["status"]] += 1
            if breaks and message["type"] == "http.response.body":
                return  # uvicorn closes the connection
            await send(message)

        await answer(scope, receive, counted)

    return app


def _said(status: int, content: Any) -> Response:
    if isinstance(content, str):
        return Response(content, status, media_type="text/html")
    return JSONResponse(content, status)


Handler = Callable[[Any], Any]


@frozen(eq=False)
class Api:
    """The endpoints of the API, which a method of that name answers."""

    server: SkyRLServer

    @property
    def db(self) -> Database:
        return self.server.database

    def routes(self) -> list[Route]:
        posts: dict[str, Handler] = {
            "create_session": self.create_session,
            "session_heartbeat": self.session_heartbeat,
            "create_model": self.create_model,
            "unload_model": self.unload_model,
            "get_info": self.get_info,
            "optim_step": self.optim_step,
            "save_weights": self.save_weights,
            "save_weights_for_sampler": self.save_weights_for_sampler,
            "load_weights": self.load_weights,
            "weights_info": self.weights_info,
            "create_sampling_session": self.create_sampling_session,
            "asample": self.asample,
            "retrieve_future": self.retrieve_future,
        }
        gets: dict[str, Handler] = {
            "healthz": lambda _: {"status": "ok"},
            "get_server_capabilities": lambda _: {"supported_models": [{"model_name": BASE}]},
            "samplers/{sampler}": self.get_sampler,
            "training_runs/{model}": self.get_training_run,
            "training_runs/{model}/checkpoints": self.list_checkpoints,
        }
        routes = [self._route("POST", path, handler) for path, handler in posts.items()]
        routes += [self._route("GET", path, handler) for path, handler in gets.items()]
        passes = (
            ("forward_backward",) if self.server.in_protobuf else ("forward_backward", "forward")
        )
        routes += [self._route("POST", path, self.run_pass, raw=True) for path in passes]
        if self.server.in_protobuf:
            path = "training_runs/{model}/checkpoints/{kind}/{name}"
            routes.append(self._route("DELETE", path, self.delete))
        return routes

    def _route(self, method: str, path: str, handler: Handler, raw: bool = False) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                given: Any = request if raw else request.path_params
                if method == "POST" and not raw:
                    given = await request.json()
                if not raw:
                    called = request.url.path.removeprefix(f"{_API}/")
                    self.server.requests.append((called, dict(given)))
                answer = handler(given)
                answer = await answer if asyncio.iscoroutine(answer) else answer
            except Refused as error:
                return JSONResponse({"detail": error.detail}, error.status)
            if isinstance(answer, Response):
                return answer
            if isinstance(answer, bytes):
                return Response(answer, media_type=PROTOBUF)
            return JSONResponse(answer)

        return Route(f"{_API}/{path}", endpoint, methods=[method])

    def openapi(self, _: Request) -> JSONResponse:
        checkpoints = f"{_API}/training_runs/{{unique_id}}/checkpoints"
        body: Body = {} if self.server.in_protobuf else {"requestBody": {}}
        paths: Body = {f"{_API}/forward_backward": {"post": body}, checkpoints: {"get": {}}}
        if self.server.in_protobuf:
            paths[f"{checkpoints}/{{checkpoint_path}}"] = {"delete": {}}
        return JSONResponse({"info": {"title": "Tinker API Mock"}, "paths": paths})

    def promise(self, kind: str, model: str, body: Any, seq_id: int | None = None) -> Body:
        """Make a future, or as of 0.4 return that of the same request."""
        key = (model, seq_id) if seq_id is not None and self.server.in_protobuf else None
        if key in self.db.numbers:
            known = self.db.numbers[key]
            if self.db.futures[known].kind != kind:
                raise Refused(409, "Training request sequence number was reused")
            return {"future_id": str(known), "status": "pending", "request_id": str(known)}
        number = next(self.db.ids)
        future = self.db.futures[number] = Future(kind, model, body)
        if key is not None:
            self.db.numbers[key] = number
        self.server.process.queue.put_nowait(future)
        return {"future_id": str(number), "status": "pending", "request_id": str(number)}

    def _model(self, name: str) -> Body:
        if name not in self.db.models:
            raise Refused(404, "Model not found")
        return self.db.models[name]

    def _checkpoint(self, model: str, kind: str, name: str) -> None:
        if (model, kind, name) not in self.db.checkpoints:
            raise Refused(404, f"Checkpoint not found: {model}/{name}")
        if self.db.checkpoints[model, kind, name] is None:
            raise Refused(425, "Checkpoint is still being created")

    def _new_checkpoint(self, model: str, kind: str, name: str) -> None:
        if model not in self.db.models:
            raise Refused(404, f"Model '{model}' not found")
        if (model, kind, name) in self.db.checkpoints:
            raise Refused(409, f"Checkpoint '{name}' already exists for model '{model}'")
        self.db.checkpoints[model, kind, name] = None

    def _session(self, name: str) -> None:
        if name not in self.db.sessions:
            raise Refused(404, "Session not found")

    def create_session(self, _: Body) -> Body:
        name = f"session_{next(self.db.ids):08x}"
        self.db.sessions.add(name)
        return {"type": "create_session", "session_id": name}

    def session_heartbeat(self, body: Body) -> Body:
        self._session(body["session_id"])
        return {"type": "session_heartbeat"}

    def create_model(self, body: Body) -> Body:
        self._session(body["session_id"])
        name, config = f"model_{next(self.db.ids):08x}", body["lora_config"]
        self.db.models[name] = {"base": body["base_model"], "rank": config["rank"]}
        return {**self.promise("create_model", name, config), "model_id": name}

    def unload_model(self, body: Body) -> Body:
        self._model(body["model_id"])
        return {
            **self.promise("unload_model", body["model_id"], None),
            "model_id": body["model_id"],
        }

    def get_info(self, body: Body) -> Body:
        model = self._model(body["model_id"])
        data = {"base_model": model["base"], "lora_config": {"rank": model["rank"], "seed": None}}
        return {
            "model_id": body["model_id"],
            "status": "created",
            "model_data": {**data, "model_name": model["base"]},
        }

    def get_training_run(self, at: Body) -> Body:
        model = self._model(at["model"])
        return {
            "training_run_id": at["model"],
            "base_model": model["base"],
            "model_owner": "default",
            "is_lora": True,
            "corrupted": False,
            "lora_rank": model["rank"],
            "last_request_time": "2026-01-01T00:00:00Z",
            "last_checkpoint": None,
            "last_sampler_checkpoint": None,
            "user_metadata": None,
        }

    async def run_pass(self, request: Request) -> Body:
        path, content = request.url.path.rpartition("/")[2], await request.body()
        if not self.server.in_protobuf:
            given = Pass.of_json(json.loads(content), path == "forward")
        elif request.headers.get("content-type") == PROTOBUF:
            given = Pass.of_protobuf(content)
        else:
            raise Refused(415, f"forward_backward requires a {PROTOBUF} body")
        self.server.requests.append((path, {"seq_id": given.seq_id, "given": given}))
        if given.loss not in _KNOWN_LOSSES:
            place = ["body", "loss_fn"]
            raise Refused(422, [{"loc": place, "msg": f"Input should be {_KNOWN_LOSSES}"}])
        self._model(given.model)
        return self.promise("pass", given.model, given, given.seq_id)

    def optim_step(self, body: Body) -> Body:
        self._model(body["model_id"])
        known = ("learning_rate", "beta1", "beta2", "eps", "weight_decay")
        params = {name: value for name, value in body["adam_params"].items() if name in known}
        return self.promise("optim_step", body["model_id"], params, body["seq_id"])

    def save_weights(self, body: Body) -> Body:
        model, name = body["model_id"], body["path"]
        self._new_checkpoint(model, "weights", name)
        answer = {"path": f"tinker://{model}/weights/{name}"}
        return self.promise("save_weights", model, ("weights", name, answer))

    def save_weights_for_sampler(self, body: Body) -> Body:
        model, number = body["model_id"], body.get("sampling_session_seq_id")
        self._model(model)
        name = body.get("path") or f"ss{number}_seq{body['seq_id']}"
        self._new_checkpoint(model, "sampler_weights", name)
        answer: Body = {"path": f"tinker://{model}/{name}", "sampling_session_id": None}
        if number is not None:
            path = f"tinker://{model}/sampler_weights/{name}"
            answer = {"path": None, "sampling_session_id": self._new_sampler(None, path)}
        return self.promise("save_weights_for_sampler", model, ("sampler_weights", name, answer))

    def load_weights(self, body: Body) -> Body:
        model = body["model_id"]
        self._model(model)
        earlier = [f for f in self.db.futures.values() if f.model == model]
        if self.server.in_protobuf and len(earlier) > 1:
            raise Refused(400, f"LoadWeights is not permitted with seq_id {len(earlier)}")
        source, kind, name = body["path"].removeprefix("tinker://").split("/")
        self._checkpoint(source, kind, name)
        optimizer = body["optimizer"] or not self.server.in_protobuf  # 0.3 does not ask
        return self.promise("load_weights", model, (source, name, optimizer))

    def weights_info(self, body: Body) -> Body:
        model, kind, name = body["tinker_path"].removeprefix("tinker://").split("/")
        known = self._model(model)
        self._checkpoint(model, kind, name)
        return {"base_model": known["base"], "is_lora": True, "lora_rank": known["rank"]}

    def list_checkpoints(self, at: Body) -> Body:
        found = [
            {
                "checkpoint_id": name,
                "checkpoint_type": "training" if kind == "weights" else "sampler",
                "time": "2026-01-01T00:00:00Z",
                "tinker_path": f"tinker://{model}/{kind}/{name}",
            }
            for (model, kind, name), saved in self.db.checkpoints.items()
            if model == at["model"] and saved is not None
        ]
        return {"checkpoints": found}

    def delete(self, at: Body) -> Response:
        self._checkpoint(at["model"], at["kind"], at["name"])
        del self.db.checkpoints[at["model"], at["kind"], at["name"]]
        return Response(status_code=204)

    def _new_sampler(self, base: str | None, path: str | None) -> str:
        name = f"sampling_{next(self.db.ids):08x}"
        self.db.samplers[name] = {"base": base, "path": path}
        return name

    def create_sampling_session(self, body: Body) -> Body:
        self._session(body["session_id"])
        base, path = body.get("base_model"), body.get("model_path")
        if (base is None) == (path is None):
            raise Refused(400, "Exactly one of base_model or model_path must be provided")
        return {"sampling_session_id": self._new_sampler(base, path)}

    def get_sampler(self, at: Body) -> Body:
        if at["sampler"] not in self.db.samplers:
            raise Refused(404, "Sampler not found")
        path = self.db.samplers[at["sampler"]]["path"]
        return {"sampler_id": at["sampler"], "base_model": BASE, "model_path": path}

    def asample(self, body: Body) -> Body:
        found = self.db.samplers.get(body["sampling_session_id"])
        if found is None:
            raise Refused(404, "Sampling session not found")
        model = name = ""
        if found["path"] is not None:
            model, *_, name = found["path"].removeprefix("tinker://").split("/")
            self._model(model)
            self._checkpoint(model, "sampler_weights", name)
        return self.promise("sample", model, {"checkpoint": name, "request": body})

    async def retrieve_future(self, body: Body) -> Any:
        future = self.db.futures.get(int(body["request_id"]))
        if future is None:
            raise Refused(404, "Future not found")
        try:
            await asyncio.wait_for(future.done.wait(), self.server.poll_seconds)
        except TimeoutError:
            raise Refused(408, "Timeout waiting for result") from None
        if future.failed:
            raise Refused(400, future.result)
        return future.result
