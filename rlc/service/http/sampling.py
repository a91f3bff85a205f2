"""Requests of sampling clients."""

from __future__ import annotations

import asyncio

from tinker import types

from rlc.service.http.backend import Backend
from rlc.service.http.checkpoints.runs import engine_path
from rlc.service.http.refusals import Refused, refusing
from rlc.service.http.sessions import Sampler


async def create_sampling_session(
    backend: Backend, request: types.CreateSamplingSessionRequest
) -> types.CreateSamplingSessionResponse:
    """A sampler of a checkpoint or a bare base model; the same number names the same sampler."""
    session = backend.sessions.session(request.session_id)
    sampler_id = f"{session.id}:sample:{request.sampling_session_seq_id}"
    if sampler_id not in backend.sessions.samplers:
        sampler = await _open(backend, request, sampler_id)
        if sampler_id not in backend.sessions.samplers:  # requested twice at the same time
            backend.sessions.add_sampler(session, sampler)
    return types.CreateSamplingSessionResponse(sampling_session_id=sampler_id)


async def _open(
    backend: Backend, request: types.CreateSamplingSessionRequest, sampler_id: str
) -> Sampler:
    path = request.model_path
    if path is None:
        if request.base_model is None:
            raise Refused(400, "Give either model_path or base_model to sample from.")
        served = backend.base(request.base_model)
        client = await backend.engine.create_sampling_client(base_model=served.source)
        return Sampler(sampler_id, served.name, None, client)
    with refusing(404):
        client = await backend.engine.create_sampling_client(model_path=engine_path(path))
    name = backend.name_of(backend.runs.run_of(path).base_model)
    if request.base_model not in (None, name):
        raise Refused(400, f"{path} is of {name}, not of {request.base_model}.")
    return Sampler(sampler_id, name, path, client)


def asample(backend: Backend, request: types.SampleRequest) -> types.UntypedAPIFuture:
    """Promise samples. Refuse a request that cannot be carried out at once."""
    if request.sampling_session_id is None or request.seq_id is None:
        raise Refused(400, "asample needs a sampling_session_id and a seq_id.")
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
            raise Refused(400, str(error))
        started.add_done_callback(count)
        return started

    def count(done: asyncio.Future[types.SampleResponse]) -> None:
        if done.cancelled() or done.exception() is not None:
            return
        sequences, length = done.result().sequences, request.prompt.length
        cached = done.result().prompt_cache_hit_tokens or 0
        backend.used(
            sampler.id,
            sampler.base_model,
            prefill=length - cached,
            cached_prefill=cached,
            sample=sum(len(sequence.tokens) for sequence in sequences),
        )
        for extension in backend.extensions:
            extension.sampled(sampler.id, request, done.result())

    return backend.promise_sample(sampler.id, request.seq_id, request.num_samples, start)


def get_sampler(backend: Backend, sampler_id: str) -> types.GetSamplerResponse:
    """What a sampler samples from."""
    sampler = backend.sessions.sampler(sampler_id)
    return types.GetSamplerResponse(
        sampler_id=sampler.id, base_model=sampler.base_model, model_path=sampler.model_path
    )
