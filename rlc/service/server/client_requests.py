"""Requests of training and sampling clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from pydantic import BaseModel
from tinker import types
from tinker.types import SaveWeightsForSamplerResponseInternal
from tinker.types.optimizer import AdamOptimizerConfig, AdamParams, OptimizerConfig
from tinker.types.save_weights_external_response import SaveWeightsExternalResponseInternal

from rlc.service.engine import losses
from rlc.service.engine.custom_loss import CustomLoss
from rlc.service.engine.lora import LoraSpec
from rlc.service.engine.service import LocalSamplingClient
from rlc.service.http import RefusedRequest, refusing
from rlc.service.interface import MappedAwaitable, ServiceError
from rlc.service.server.account_requests import check_recipients
from rlc.service.server.backend import Backend, SamplingSession, ServedAdapter, Session, check_ttl
from rlc.service.server.runs import engine_path, tinker_path
from rlc.service.server.wire import Pass

CUSTOM = "custom"  # the name of all custom losses, which have ids besides
_MOST_LOSSES = 256  # of a session
Start = Callable[[], Awaitable[Any]]  # of work that was accepted


def create_custom_loss(
    backend: Backend, request: types.CreateCustomLossRequest
) -> types.UntypedAPIFuture:
    """Check a traced loss and keep it for its session. A loss that is refused fails its promise; a
    repeated number is a repeated request."""
    session = backend.sessions.session(request.session_id)
    loss_id = f"{session.id}:loss:{request.custom_loss_seq_id}"

    async def create() -> types.CreateCustomLossResponse:
        if not backend.custom_losses:
            raise ServiceError("This server computes no custom losses; the SDK does it instead.")
        if loss_id not in session.losses:
            if len(session.losses) >= _MOST_LOSSES:
                raise ServiceError(f"A session has at most {_MOST_LOSSES} custom losses.")
            session.losses[loss_id] = CustomLoss.read(request.name, request.inputs, request.graph)
        return types.CreateCustomLossResponse(loss_id=loss_id)

    promised = backend.promise(loss_id, create, "create_custom_loss")
    return types.UntypedAPIFuture(request_id=promised.request_id)


def find_loss(session: Session, config: Mapping[str, float | str] | None) -> CustomLoss:
    """Return the custom loss of a request. Raise ServiceError if its session has none such."""
    given = dict(config or {})
    loss_id = given.pop("loss_id", None)
    if given or not isinstance(loss_id, str):
        setting = "one setting, the loss_id that create_custom_loss returned."
        raise ServiceError(f"{CUSTOM} takes {setting}")
    if loss_id not in session.losses:
        raise ServiceError(
            f"This session has no custom loss {loss_id!r}: a loss can be used in the session that "
            "created it, and not after a restart of the server."
        )
    return session.losses[loss_id]


def create_model(backend: Backend, request: types.CreateModelRequest) -> types.UntypedAPIFuture:
    """Create an adapter. Refuse a model that is not served, or a bad rank, at once."""
    session = backend.sessions.session(request.session_id)
    model_id = f"{session.id}:train:{request.model_seq_id}"
    with backend.futures.keeping_refusals(f"{model_id}/0"):
        served, config = backend.base(request.base_model), request.lora_config
        _require_adam(request.optimizer_config)
        if config is None:
            problem = "This server trains LoRA adapters: give create_model a lora_config."
            raise RefusedRequest(400, problem)
        layers = config.train_mlp, config.train_attn, config.train_unembed
        LoraSpec(config.rank, *layers)  # refuses a rank or a choice of layers that cannot be

    async def create() -> types.CreateModelResponse:
        client = await backend.engine.create_lora_training_client(
            served.source, config.rank, config.seed, *layers, model=model_id
        )
        model = ServedAdapter(model_id, served.name, client)
        backend.add_model(session, model, request.user_metadata)
        return types.CreateModelResponse(model_id=model_id)

    return backend.promise(model_id, create)


def get_info(backend: Backend, request: types.GetInfoRequest) -> types.GetInfoResponse:
    model = backend.sessions.model(request.model_id)
    facts = backend.base(model.base_model).facts
    return types.GetInfoResponse(
        type="get_info",
        model_id=model.id,
        model_name=model.base_model,
        is_lora=True,
        lora_rank=model.lora.rank,
        model_data=types.ModelData(
            arch=facts.architecture, model_name=model.base_model, tokenizer_id=str(facts.folder)
        ),
    )


def forward_backward(backend: Backend, request: Pass) -> types.UntypedAPIFuture:
    model = backend.sessions.model(request.model_id)

    def start() -> Awaitable[Any]:
        run = model.client.forward if request.forward_only else model.client.forward_backward
        data = request.read_data()
        session = backend.sessions.session(model.id.split(":")[0])
        if request.loss_fn == CUSTOM:
            running = run(data, find_loss(session, request.config))
        else:
            if losses.find(request.loss_fn).sampled_only:
                for extension in backend.extensions:
                    extension.check_sampled(session.id, data)
            running = run(data, request.loss_fn, request.config)
        tokens = sum(datum.model_input.length for datum in data)

        def counted(output: types.ForwardBackwardOutput) -> types.ForwardBackwardOutput:
            backend.used(model.id, model.base_model, training=tokens)
            return output

        return MappedAwaitable(running, counted)

    what = "forward" if request.forward_only else "forward_backward"
    return backend.promise_in_order(model, request.seq_id, what, start)


def optim_step(backend: Backend, request: types.OptimStepRequest) -> types.UntypedAPIFuture:
    model = backend.sessions.model(request.model_id)
    params = request.optim_params

    def start() -> Awaitable[types.OptimStepResponse]:
        if not isinstance(params, AdamParams):
            raise ServiceError(f"This server has AdamW only, not {params.type!r}.")
        return model.client.optim_step(params)

    return backend.promise_in_order(model, request.seq_id, "optim_step", start)


def save_weights(backend: Backend, request: types.SaveWeightsRequest) -> types.UntypedAPIFuture:
    """Save weights and optimiser. A name that is taken fails the promise: the SDK would retry an
    HTTP 409 for minutes."""
    model = backend.sessions.model(request.model_id)

    def save() -> Awaitable[types.SaveWeightsResponse]:
        ttl, metadata = request.ttl_seconds, request.user_metadata
        return model.client.save_state(_name(request.path), ttl, request.overwrite, metadata)

    start = _saving(backend, model, request.ttl_seconds, save, types.SaveWeightsResponse)
    return backend.promise_in_order(model, request.seq_id, "save_weights", start)


def save_weights_for_sampler(
    backend: Backend, request: types.SaveWeightsForSamplerRequest
) -> types.UntypedAPIFuture:
    """Save the weights alone: under a name, or without one as a sampler in memory."""
    model = backend.sessions.model(request.model_id)

    def save() -> Awaitable[types.SaveWeightsForSamplerResponse]:
        return model.client.save_weights_for_sampler(
            _name(request.path), request.ttl_seconds, user_metadata=request.user_metadata
        )

    def make_sampler() -> Awaitable[SaveWeightsForSamplerResponseInternal]:
        session = backend.sessions.session(model.id.split(":")[0])
        sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"

        def register(client: LocalSamplingClient) -> SaveWeightsForSamplerResponseInternal:
            mutable = getattr(request, "kind", None) == "inflight"  # as of SDK 0.37
            sampler = SamplingSession(sampler_id, model.base_model, None, client, mutable)
            backend.sessions.add_snapshot(session, model, sampler)
            return SaveWeightsForSamplerResponseInternal(sampling_session_id=sampler_id)

        return MappedAwaitable(model.client.save_weights_and_get_sampling_client(), register)

    start: Start = make_sampler
    if request.sampling_session_seq_id is None:
        answer = types.SaveWeightsForSamplerResponse
        start = _saving(backend, model, request.ttl_seconds, save, answer)
    return backend.promise_in_order(model, request.seq_id, "save_weights_for_sampler", start)


def save_weights_external(
    backend: Backend, request: types.SaveWeightsExternalRequest
) -> types.UntypedAPIFuture:
    """Export the adapter for other programs."""
    model, ttl = backend.sessions.model(request.model_id), request.ttl_seconds

    def save() -> Awaitable[types.SaveWeightsResponse]:
        recipients = request.age_encryption_recipients or []
        check_recipients(recipients)
        return model.client.save_weights_external(request.path, ttl, recipients)

    start = _saving(backend, model, ttl, save, SaveWeightsExternalResponseInternal)
    return backend.promise_in_order(model, request.seq_id, "save_weights_external", start)


def _saving(
    backend: Backend, model: ServedAdapter, ttl: int | None, save: Start, answer: type[BaseModel]
) -> Start:
    """Return a function that starts to save a checkpoint, and answers with the SDK's path of it."""

    def saved(response: Any) -> BaseModel:
        path = tinker_path(response.path)
        backend.used(model.id, model.base_model, checkpoints=1)
        backend.happened("checkpoint_created", tinker_path=path)
        return answer(path=path)

    def start() -> Awaitable[Any]:
        check_ttl(ttl)
        return MappedAwaitable(save(), saved)

    return start


def load_weights(backend: Backend, request: types.LoadWeightsRequest) -> types.UntypedAPIFuture:
    """Load a checkpoint into a model, or (with a session) as a new model."""
    path = engine_path(request.path)
    if request.model_id is not None:
        model = backend.sessions.model(request.model_id)
        answer = types.LoadWeightsResponse(path=request.path, model_id=model.id)

        def start() -> Awaitable[types.LoadWeightsResponse]:
            return MappedAwaitable(model.client.load(path, request.optimizer), lambda _: answer)

        return backend.promise_in_order(model, request.seq_id, "load_weights", start)
    if request.session_id is None or request.model_seq_id is None:
        problem = "load_weights needs a model_id, or a session_id and a model_seq_id."
        raise RefusedRequest(400, problem)
    session = backend.sessions.session(request.session_id)
    model_id = f"{session.id}:train:{request.model_seq_id}"
    with backend.futures.keeping_refusals(f"{model_id}/0"):
        _require_adam(request.optimizer_config)
    create = backend.engine.create_training_client_from_state
    if request.optimizer:
        create = backend.engine.create_training_client_from_state_with_optimizer

    async def load() -> types.LoadWeightsResponse:
        name = backend.name_of(backend.runs.run_of(request.path).base_model)
        if request.base_model not in (None, name):
            raise RefusedRequest(400, f"{request.path} is of {name}, not of {request.base_model}.")
        served = backend.base(name)
        client = await create(path, model=model_id)
        model = ServedAdapter(model_id, served.name, client)
        backend.add_model(session, model, request.user_metadata)
        return types.LoadWeightsResponse(path=request.path, model_id=model_id)

    return backend.promise(model_id, load)


def unload_model(backend: Backend, request: types.UnloadModelRequest) -> types.UnloadModelResponse:
    model = backend.sessions.model(request.model_id)
    del backend.sessions.models[model.id]
    backend.futures.forget(model.id)
    return types.UnloadModelResponse(model_id=model.id)


def _name(path: str | None) -> str:
    if path is None:
        raise ServiceError("A checkpoint needs a name.")
    return path


def _require_adam(config: OptimizerConfig | None) -> None:
    if config is not None and not isinstance(config, AdamOptimizerConfig):
        raise RefusedRequest(400, f"This server has AdamW only, not {config.type!r}.")


async def create_sampling_session(
    backend: Backend, request: types.CreateSamplingSessionRequest
) -> types.CreateSamplingSessionResponse:
    """Open a sampler; a repeated number is a repeated request."""
    session = backend.sessions.session(request.session_id)
    sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"
    if sampler_id not in backend.sessions.samplers:
        sampler = await _open(backend, request, sampler_id)
        if sampler_id not in backend.sessions.samplers:  # requested twice at the same time
            backend.sessions.add_sampler(session, sampler)
    return types.CreateSamplingSessionResponse(sampling_session_id=sampler_id)


async def _open(
    backend: Backend, request: types.CreateSamplingSessionRequest, sampler_id: str
) -> SamplingSession:
    path = request.model_path
    if path is None:
        if request.base_model is None:
            raise RefusedRequest(400, "Give either model_path or base_model to sample from.")
        served = backend.base(request.base_model)
        client = await backend.engine.create_sampling_client(base_model=served.source)
        return SamplingSession(sampler_id, served.name, None, client)
    with refusing(404):
        client = await backend.engine.create_sampling_client(model_path=engine_path(path))
    name = backend.name_of(backend.runs.run_of(path).base_model)
    if request.base_model not in (None, name):
        raise RefusedRequest(400, f"{path} is of {name}, not of {request.base_model}.")
    return SamplingSession(sampler_id, name, path, client)


def asample(backend: Backend, request: types.SampleRequest) -> types.UntypedAPIFuture:
    """Promise samples. Refuse at once a request that cannot be carried out."""
    if request.sampling_session_id is None or request.seq_id is None:
        raise RefusedRequest(400, "asample needs a sampling_session_id and a seq_id.")
    sampler = backend.sessions.sampler(request.sampling_session_id)
    targets = request.target_prompt_logprobs

    def start() -> asyncio.Future[types.SampleResponse]:
        started = asyncio.ensure_future(
            sampler.client.sample(
                request.prompt,
                request.num_samples,
                request.sampling_params,
                bool(request.prompt_logprobs),
                request.topk_prompt_logprobs,
                request.prompt_logprobs_last_n,
                request.topk_sample_logprobs,
                None if targets is None else types.TensorData(**targets.model_dump()),
                request.prompt_alt_tokens_k,
            )
        )
        if started.done() and (error := started.exception()) is not None:
            raise RefusedRequest(400, str(error))
        started.add_done_callback(count)
        return started

    def count(done: asyncio.Future[types.SampleResponse]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        backend.used_samples(sampler.id, sampler.base_model, request.prompt, done.result())
        for extension in backend.extensions:
            extension.sampled(sampler.id, request, done.result())

    return backend.promise_sample(sampler.id, request.seq_id, request.num_samples, start)


def get_sampler(backend: Backend, sampler_id: str) -> types.GetSamplerResponse:
    sampler = backend.sessions.sampler(sampler_id)
    return types.GetSamplerResponse(
        sampler_id=sampler.id, base_model=sampler.base_model, model_path=sampler.model_path
    )
