"""Samples of prompts under way, token by token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from attrs import define, field, frozen

from rlc.envs.chunks import NO_CHUNKS, Chunks
from rlc.envs.ends import Ends
from rlc.service.chats.draw import Draw
from rlc.service.chats.model import ChatModel
from rlc.service.interface import SampledToken

if TYPE_CHECKING:
    from tinker import types


@frozen
class ScoredToken:
    """A token of a prompt. The first has no logprob: nothing comes before it."""

    token: int
    logprob: float | None
    likeliest: tuple[tuple[int, float], ...]


@define(eq=False)
class Generation:
    """Samples of some prompts, under way once it is made. Choice ``i`` is sample ``i % n`` of
    prompt ``i // n``."""

    model: ChatModel
    prompts: tuple[tuple[int, ...], ...]
    draw: Draw
    ends: Ends
    chunks: Chunks = NO_CHUNKS  # what is not text among the tokens of the prompts
    _events: asyncio.Queue[tuple[int, SampledToken] | None] = field(
        factory=asyncio.Queue, init=False
    )
    _first: tuple[int, SampledToken] | None = field(default=None, init=False)
    replies: list[asyncio.Task[types.SampleResponse]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        for number in range(len(self.prompts)):
            self.replies.append(self._request(number))

    def _request(self, number: int) -> asyncio.Task[types.SampleResponse]:
        def pass_on(token: SampledToken) -> None:
            self._events.put_nowait((number * self.n + token.sample, token))

        prompt = self.prompts[number]
        work = self.model.sample(prompt, self.draw, self.ends, self.chunks, pass_on)
        reply = asyncio.ensure_future(work)
        reply.add_done_callback(lambda _: self._events.put_nowait(None))
        return reply

    @property
    def n(self) -> int:
        """Samples of each prompt."""
        return self.draw.n

    async def begin(self) -> None:
        """Wait for the first token. Raise what the service raises instead, and stop sampling."""
        try:
            self._first = await self._events.get()
            self._check()
        except BaseException:
            self.cancel()
            raise

    async def tokens(self) -> AsyncIterator[tuple[int, SampledToken]]:
        """Iterate over the numbers of choices and their tokens, as they are sampled, after
        :meth:`begin`. Sampling stops when the iterator is closed. Raise what the service raises."""
        event, left = self._first, len(self.replies)
        try:
            while left:
                if event is None:  # a reply is done
                    left -= 1
                    self._check()
                else:
                    yield event
                event = await self._events.get() if left else None
        finally:
            self.cancel()

    def _check(self) -> None:
        for reply in self.replies:
            if reply.done():
                reply.result()

    def cancel(self) -> None:
        """Stop sampling."""
        for reply in self.replies:
            reply.cancel()

    def scored(self, number: int) -> list[ScoredToken]:
        """The tokens of prompt ``number`` with their logprobs, once all is sampled."""
        reply = self.replies[number].result()
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
        return sum(reply.result().prompt_cache_hit_tokens or 0 for reply in self.replies)
