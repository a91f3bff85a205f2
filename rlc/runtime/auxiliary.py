"""Auxiliary models, which the stages of a job sample from and do not train: opened at their first
use, with a cache of their replies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import blake2b
from math import fsum
from typing import Any
from weakref import WeakValueDictionary

from attrs import define, field

from rlc.chat import Chunks, chunks_to_json, fitting_renderer, model_input
from rlc.envs import (
    Deadline,
    EndpointResponder,
    ModelReply,
    ModelRequest,
    Responder,
    Responders,
    waiting,
)
from rlc.plan import Asked, EndpointPlan, ModelPlan, ModelState, Sampling
from rlc.pricing import endpoint_dollars
from rlc.runtime.concurrency import in_thread
from rlc.runtime.journal.database import PROBES, Journal, Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.records import Usage
from rlc.runtime.weights import open_sampler, open_stage
from rlc.seeds import derive_seed
from rlc.service import (
    ChatModel,
    SamplingClient,
    SamplingRequest,
    ServiceClient,
    asking,
    pending_call,
)


@define(eq=False)
class Answers:
    """The answers in the journal of a job. Each question is asked once at a time."""

    journal: Journal
    _locks: WeakValueDictionary[str, asyncio.Lock] = field(factory=WeakValueDictionary, init=False)
    _places: dict[str, asyncio.Semaphore] = field(factory=dict, init=False)

    async def once(
        self, question: Sequence[Any], ask: Callable[[], Awaitable[tuple[str, str]]]
    ) -> tuple[str, str]:
        """Return the answer to a question, of plain data, and its stop reason; ``ask`` once."""
        key = blake2b(json.dumps(question).encode(), digest_size=20).hexdigest()
        lock = self._locks.setdefault(key, asyncio.Lock())
        with asking(), waiting():  # the episode that asks is idle meanwhile
            async with lock:
                if (known := self.journal.answer(key)) is not None:
                    return known
                found = await ask()
                self.journal.keep_answer(key, *found)
                return found

    def places(self, model: str, most: int) -> asyncio.Semaphore:
        """Return the semaphore of a model for at most so many requests at once."""
        return self._places.setdefault(f"{model} {most}", asyncio.Semaphore(most))


@define(eq=False)
class ReplyCache:
    """A responder whose replies are kept by model, messages, sampling, and key of the question."""

    inner: Responder
    answers: Answers
    asked: Asked
    most: int
    timeout: float | None

    async def reply(self, question: ModelRequest) -> ModelReply:
        model = repr(self.asked)
        messages = [dict(message) for message in question.messages]
        sampling = question.sampling
        usual = Sampling(sampling.max_tokens, sampling.temperature, stop=sampling.stop)
        parts = [model, messages, sampling.max_tokens, sampling.temperature, question.key]
        parts += [sampling.stop] if sampling.stop else []
        parts += [repr(sampling)] if sampling != usual else []
        places = self.answers.places(model, self.most)

        async def ask() -> tuple[str, str]:
            async with places, Deadline(self.timeout, "an answer of the judge"):
                found = await self.inner.reply(question)
            return found.text, found.stop_reason

        return ModelReply(*await self.answers.once(parts, ask))


LONGEST_REPLY = 600.0  # seconds of an endpoint for a reply, by default


@define(eq=False)
class AuxiliaryModels:
    """The auxiliary models of a job, each opened once."""

    service: ServiceClient
    folder: RunFolder
    answers: Answers = field(init=False)
    _clients: dict[str, asyncio.Task[SamplingClient]] = field(factory=dict, init=False)
    _endpoints: list[EndpointResponder] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.answers = Answers(self.folder.journal)

    async def client(self, state: ModelState) -> SamplingClient:
        """Return a client that samples from a model.

        Raise LostCheckpointError or RunError if the stage of its weights has left no usable
        checkpoint, and ServiceError if the service does not have the model.
        """
        key = repr(state)
        task = self._clients.get(key)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            self._clients[key] = task = asyncio.ensure_future(self._open(state))
        with pending_call(ours=True):  # requests to the client follow
            return await asyncio.shield(task)

    async def _open(self, state: ModelState) -> SamplingClient:
        if state.after is not None:
            return await open_stage(self.service, self.folder, state.after)
        return await open_sampler(self.service, state.model)

    def responders(self, around: Meter) -> Responders:
        """Return the responders for the environments of a stage, whose meter is ``around``: their
        tokens are the stage's, at their own price."""
        return _Responders(self, around)

    async def close(self) -> None:
        """Close the connections to endpoints."""
        for endpoint in self._endpoints:
            await endpoint.close()

    def answering(self, around: Meter, model: ModelPlan, client: SamplingClient) -> Responder:
        """Return a responder with an open client: a snapshot of a stage."""
        return _ModelResponder(self, around, ModelState(model, None), client)


@define(eq=False)
class _Responders:
    """See :class:`rlc.envs.responders.Responders`."""

    models: AuxiliaryModels
    around: Meter

    def __call__(
        self, asked: Asked, most: int | None = None, timeout: float | None = None
    ) -> Responder:
        responder: Responder
        if isinstance(asked, EndpointPlan):
            spent = partial(self._spent, asked)
            responder = endpoint = EndpointResponder(asked, timeout or LONGEST_REPLY, spent)
            self.models._endpoints.append(endpoint)
        else:
            responder = _ModelResponder(self.models, self.around, asked)
        if most is None:
            return responder
        return ReplyCache(responder, self.models.answers, asked, most, timeout)

    def _spent(self, endpoint: EndpointPlan, prompt: int, reply: int) -> None:
        """Journal the tokens of a request to an endpoint, at its price."""
        step = max(self.around.running, default=PROBES)
        usage, usd = Usage(prompt, sampled=reply), endpoint_dollars(endpoint, prompt, reply)
        self.around.journal.add_spend(self.around.stage, step, usage, usd)

    async def logprob(
        self, model: ModelState, tokens: Sequence[int], chunks: Chunks, said: Sequence[int]
    ) -> float:
        async def read() -> tuple[str, str]:
            client = await self.models.client(model)
            usage = Usage()
            logprobs = await token_logprobs(client, list(tokens), chunks, usage)
            _charge(self.around, model.model, usage)
            return repr(fsum(logprobs[at - 1] for at in said)), "stop"

        parts = [repr(model), list(tokens), chunks_to_json(chunks), list(said)]
        return float((await self.models.answers.once(parts, read))[0])


async def token_logprobs(
    client: SamplingClient, tokens: Sequence[int], chunks: Chunks, usage: Usage
) -> list[float]:
    """Return the logprob of each token after the first, 0 of what is not text; count the usage."""
    logprobs = await client.compute_logprobs(model_input(tokens, chunks))
    usage.prefill += len(tokens)
    return [0.0 if one is None else one for one in logprobs[1:]]


def _charge(around: Meter, model: ModelPlan, usage: Usage) -> None:
    """Journal the tokens of a request to a model, at its price."""
    meter = Meter(around.journal, around.stage, model)
    meter.add(max(around.running, default=PROBES), usage)


async def chat_model(model: ModelPlan, client: SamplingClient) -> ChatModel:
    """Return a chat model; raise EnvError or ServiceError for its renderer or tokenizer."""
    tokenizer = await in_thread(client.get_tokenizer)
    # Not in a thread: a tokenizer may be used by one at a time, and environments use it here.
    renderer = fitting_renderer(tokenizer, model.renderer)
    ends = frozenset({tokenizer.eos_token_id} - {None})
    name = model.weights or model.name
    return ChatModel(name, model.base, client, tokenizer, renderer, model.context, ends)


@define(eq=False)
class _ModelResponder:
    models: AuxiliaryModels
    around: Meter
    state: ModelState
    client: SamplingClient | None = None
    _opening: asyncio.Lock = field(factory=asyncio.Lock, init=False)
    _model: ChatModel | None = field(default=None, init=False)

    async def reply(self, question: ModelRequest) -> ModelReply:
        with asking():
            model = await self._opened()
            seed = derive_seed(self.models.folder.plan.seed, "asked", *question.key) % 2**31
            request = SamplingRequest(None, seed=seed).sampled(question.sampling)
            prompt = model.prompt(question.messages)
            ends = model.chat_ends(question.sampling.stop)
            response = await model.sample(prompt.tokens, request, ends, prompt.chunks)
        usage = Usage()
        usage.add_samples(len(prompt.tokens), 1, response)
        _charge(self.around, self.state.model, usage)
        reply = model.reply(response.sequences[0], ends)
        return ModelReply(reply.text, reply.stop_reason)

    async def _opened(self) -> ChatModel:
        client = self.client or await self.models.client(self.state)
        async with self._opening:
            if self._model is None:
                self._model = await chat_model(self.state.model, client)
        return self._model
