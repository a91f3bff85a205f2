"""Requests to sample, the same for every API: tokens as they come, limits, and what is kept."""

from __future__ import annotations

import asyncio
from array import array
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from functools import partial

from attrs import define, field, frozen
from tinker import types

from rlc.service.http.backend import Backend
from rlc.service.http.inference.models import InferenceModel, Models
from rlc.service.http.refusals import Refused
from rlc.service.interface import SampledToken

MOST_CHOICES = 128  # of a request
_MOST_AT_ONCE = 4_096  # samples under way
_MOST_KEPT = 8 * 2**20  # tokens in the book, of prompts and replies: about 100 MB
_OWNER = "inference"  # as which usage is counted: these requests belong to no session


@frozen
class Draw:
    """How a request samples: OpenAI's and Anthropic's parameters under Tinker's names."""

    n: int = 1
    max_tokens: int | None = None  # None: to the end of the context
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    seed: int | None = None
    stops: tuple[str, ...] = ()
    topk: int = 0  # of the likeliest tokens beside each sampled one
    scores_prompts: bool = False  # the same for the tokens of the prompts


@frozen
class Ends:
    """What ends a reply: ids of tokens, or text. A service takes one kind or the other."""

    tokens: tuple[int, ...]
    texts: tuple[str, ...]

    def stop(self, model: InferenceModel) -> list[int] | list[str]:
        """As a service takes it: tokens as their text where there is other text."""
        if not self.texts:
            return list(self.tokens)
        return list(self.cutting(model))

    def cutting(self, model: InferenceModel) -> tuple[str, ...]:
        """Text that is no part of a reply, nor is what follows it."""
        return (*self.texts, *(str(model.tokenizer.decode([token])) for token in self.tokens))


@frozen
class ScoredToken:
    """A token of a prompt. The first has no logprob: nothing comes before it."""

    token: int
    logprob: float | None
    likeliest: tuple[tuple[int, float], ...]


@frozen
class Choice:
    """A sampled reply as it was sampled, to the token."""

    token_ids: array[int]
    logprobs: array[float]


@frozen
class Entry:
    """A request that was answered: what a training program needs of it."""

    id: str
    model: str
    prompts: tuple[array[int], ...]
    choices: tuple[Choice, ...]
    user: str | None
    metadata: dict[str, str]

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return sum(map(len, self.prompts)) + sum(len(choice.token_ids) for choice in self.choices)


@define(eq=False)
class Inference:
    """The state of the routes of all APIs."""

    backend: Backend
    models: Models = field(init=False)
    _book: OrderedDict[str, Entry] = field(factory=OrderedDict, init=False)
    _kept: int = field(default=0, init=False)  # tokens in the book
    _under_way: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.models = Models(self.backend)

    def record(self, entry: Entry) -> None:
        """Keep a request; the oldest make room."""
        self._book[entry.id] = entry
        self._kept += entry.size
        while self._kept > _MOST_KEPT:
            _, oldest = self._book.popitem(last=False)
            self._kept -= oldest.size

    def entry(self, request_id: str) -> Entry:
        """A request that was answered. Raise Refused (404) if it is not known any more."""
        if request_id not in self._book:
            raise Refused(404, f"There is no answered request {request_id} here.")
        return self._book[request_id]

    def start(
        self, model: InferenceModel, prompts: Sequence[Sequence[int]], draw: Draw, ends: Ends
    ) -> Generation:
        """Begin to sample. Raise Refused (400) if the engine refuses, (429) if it has too much to
        do."""
        for prompt in prompts:
            if len(prompt) + (draw.max_tokens or 1) > model.context:
                limit = "" if draw.max_tokens is None else f" and max_tokens = {draw.max_tokens}"
                said = f"The prompt is too long: {len(prompt)} tokens{limit} exceed the context of "
                said += f"{model.context} tokens."
                raise Refused(400, said, code="context_length_exceeded")
        if self._under_way + draw.n * len(prompts) > _MOST_AT_ONCE:
            raise Refused(429, f"More than {_MOST_AT_ONCE:,} samples would be under way at once.")
        generation = Generation(
            model, tuple(map(tuple, prompts)), draw.n, self.backend.delay("sample")
        )
        params = types.SamplingParams(
            max_tokens=draw.max_tokens,
            seed=draw.seed,
            stop=ends.stop(model),
            temperature=draw.temperature,
            top_k=draw.top_k,
            top_p=draw.top_p,
        )
        for number in range(len(prompts)):
            self._under_way += draw.n
            reply = generation.request(number, params, draw)
            reply.add_done_callback(partial(self._count, model, len(prompts[number]), draw.n))
        generation.check()
        return generation

    def _count(
        self, model: InferenceModel, prompt: int, n: int, done: asyncio.Future[types.SampleResponse]
    ) -> None:
        self._under_way -= n
        if done.cancelled() or done.exception() is not None:
            return
        cached = done.result().prompt_cache_hit_tokens or 0
        self.backend.usage.add(
            _OWNER,
            model.base_model,
            prefill=prompt - cached,
            cached_prefill=cached,
            sample=sum(len(sequence.tokens) for sequence in done.result().sequences),
        )


@define(eq=False)
class Generation:
    """Samples of some prompts under way. Choice ``i`` is sample ``i % n`` of prompt ``i // n``."""

    model: InferenceModel
    prompts: tuple[tuple[int, ...], ...]
    n: int  # samples of each prompt
    _delay: float  # seconds before the first token is passed on
    _events: asyncio.Queue[tuple[int, SampledToken] | None] = field(
        factory=asyncio.Queue, init=False
    )
    _replies: list[asyncio.Future[types.SampleResponse]] = field(factory=list, init=False)

    def request(
        self, number: int, params: types.SamplingParams, draw: Draw
    ) -> asyncio.Future[types.SampleResponse]:
        """Sample prompt ``number``."""

        def pass_on(token: SampledToken) -> None:
            self._events.put_nowait((number * self.n + token.sample, token))

        reply = asyncio.ensure_future(
            self.model.client.sample(
                types.ModelInput.from_ints(list(self.prompts[number])),
                self.n,
                params,
                draw.scores_prompts,
                draw.topk if draw.scores_prompts else 0,
                topk_sample_logprobs=draw.topk,
                on_token=pass_on,
            )
        )
        reply.add_done_callback(lambda _: self._events.put_nowait(None))
        self._replies.append(reply)
        return reply

    def check(self) -> None:
        """Raise Refused (400) if a request was refused at once; the others are then cancelled."""
        refused = [r.exception() for r in self._replies if r.done() and not r.cancelled()]
        for error in filter(None, refused):
            self.cancel()
            raise Refused(400, str(error)) from error

    def cancel(self) -> None:
        """Stop sampling."""
        for reply in self._replies:
            reply.cancel()

    async def tokens(self) -> AsyncIterator[tuple[int, SampledToken]]:
        """Iterate over the numbers of choices and their tokens, as they are sampled. Sampling stops
        when the iterator is closed. Raise ServiceError if the engine fails."""
        try:
            await asyncio.sleep(self._delay)
            for _ in self._replies:
                while (event := await self._events.get()) is not None:
                    yield event
                for reply in self._replies:
                    if reply.done():
                        reply.result()
        finally:
            self.cancel()

    def scored(self, number: int) -> list[ScoredToken]:
        """The tokens of prompt ``number`` with their logprobs, once all is sampled."""
        reply = self._replies[number].result()
        tokens = self.prompts[number]
        logprobs = reply.prompt_logprobs or [None] * len(tokens)
        likeliest = reply.topk_prompt_logprobs or [None] * len(tokens)
        return [
            ScoredToken(token, logprob, tuple(best or ()))
            for token, logprob, best in zip(tokens, logprobs, likeliest, strict=True)
        ]

    @property
    def cached_tokens(self) -> int:
        """How many tokens of the prompts had been computed before, once all is sampled."""
        return sum(reply.result().prompt_cache_hit_tokens or 0 for reply in self._replies)
