"""The number of replies that a service samples at once: raised while it answers, cut when it is
overloaded.

:class:`AdaptiveConcurrency` decides the level; it is a state machine without a clock of its own.
:class:`ConcurrencyLimiter` delays requests accordingly, first come, first served, so that all
episodes advance, whatever their environment.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from attrs import define, field

from rlc.envs import waiting
from rlc.service import SamplingClient

if TYPE_CHECKING:
    from tinker import types

START = 512  # concurrent replies before anything is known of a service
MOST = 8_192
_SHORTEST_COOLDOWN = 1.0  # seconds: the SDK's own pause after a refusal
_SMALLEST_WINDOW = 64  # replies needed to compare latencies
_FORGET = 1.02  # decay of the best values with each window: services change


@define
class _Window:
    """Consecutive replies that came while the limiter was full."""

    since: float
    size: float  # replies that complete it
    replies: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of waiting for them, summed


@define
class AdaptiveConcurrency:
    """The level: how many replies may be sampled at once. Times are monotonic seconds.

    Additive increase, multiplicative decrease: a refusal halves the level, at most once in the
    time of an answer, and it then grows by an eighth in each such time, while requests wait for it.
    Up to ``known``, a fifth below the level of the last refusal, it doubles instead. A refusal far
    below ``known`` is due to the load of others and lowers it little.

    Latencies per token are compared over windows of answers. If they have doubled without more
    tokens a second than before, the level shrinks by a tenth, or by a fifth if there are far fewer
    tokens. With ``adapts = False`` the level is always ``cap``.
    """

    cap: int = MOST
    adapts: bool = True
    level: float = START
    known: float = MOST
    backoffs: int = 0
    refused: bool = False  # whether a request was ever refused
    _cut_at: float = float("-inf")
    _latency: float = 0.0  # of an answer, seconds, smoothed
    _window: _Window | None = None
    _fastest: float = float("inf")  # seconds a token
    _most: float = 0.0  # tokens a second
    _too_slow: bool = False  # whether the last window was

    @property
    def limit(self) -> int:
        """The number of concurrent replies, at least one."""
        return max(1, min(self.cap, int(self.level))) if self.adapts else self.cap

    def answered(self, now: float, seconds: float, replies: int, tokens: int, full: bool) -> None:
        """Record an answer after ``seconds``; ``full`` if other requests wait for its slot."""
        self._latency += (seconds - self._latency) / 8 if self._latency else seconds
        if not full or not self.adapts:
            self._window = None
            return
        if not self._too_slow:
            steep = self.level < self.known
            self.level += replies * (1.0 if steep else max(1.0, self.level / 8) / self.level)
            self.level = min(self.level, float(self.cap))
        self._compare_latencies(now, seconds, replies, tokens)

    def pressed(self, now: float) -> None:
        """Record that the service refused a request, or that its queue is full."""
        if not self.adapts or now - self._cut_at < max(_SHORTEST_COOLDOWN, self._latency):
            return
        if not self.refused or self.level >= self.known:
            self.known = 0.8 * self.level
        else:
            self.known *= 0.8 if 4 * self.level >= self.known else 0.97
        self.refused = True
        self._cut(now, 0.5)

    def _compare_latencies(self, now: float, seconds: float, replies: int, tokens: int) -> None:
        size = max(_SMALLEST_WINDOW, self.level)
        window = self._window = self._window or _Window(now, size)
        window.replies += replies
        window.tokens += tokens
        window.seconds += seconds * replies
        if window.replies < window.size or now <= window.since:
            return
        slowness = window.seconds / max(1, window.tokens)
        rate = window.tokens / (now - window.since)
        self._window = None
        self._too_slow = slowness > 2 * self._fastest and rate < 1.05 * self._most
        if self._too_slow:
            self._cut(now, 0.8 if rate < 0.7 * self._most else 0.9)
            self.known = self.level
        self._fastest = min(self._fastest * _FORGET, slowness)
        self._most = max(self._most / _FORGET, rate)

    def _cut(self, now: float, factor: float) -> None:
        self.level = max(1.0, self.level * factor)
        self.backoffs += 1
        self._cut_at, self._window = now, None


@define
class _Answer:
    tokens: int = 0


@define(eq=False)
class ConcurrencyLimiter:
    """Admits requests as the level of ``concurrency`` allows: one that is larger than the level
    alone. One that is cancelled, waiting or running, leaves its slot to the next."""

    concurrency: AdaptiveConcurrency = field(factory=AdaptiveConcurrency)
    clock: Callable[[], float] = time.monotonic
    in_flight: int = 0  # replies
    waited: float = 0.0  # seconds, summed over requests
    _queue: deque[tuple[int, asyncio.Future[None]]] = field(factory=deque)
    _reported: int = 0  # backoffs in earlier metrics

    @asynccontextmanager
    async def slot(self, replies: int) -> AsyncIterator[_Answer]:
        """Wait for the slot of a request of so many replies, and keep it in the block, which sets
        the number of tokens of the answer."""
        await self._enter(replies)
        answer, since = _Answer(), self.clock()
        try:
            yield answer
            now, full = self.clock(), bool(self._queue)
            self.concurrency.answered(now, now - since, replies, answer.tokens, full)
        finally:
            self.in_flight -= replies
            self._admit()

    def pressed(self) -> None:
        """Record that the service has too much to do."""
        self.concurrency.pressed(self.clock())

    def metrics(self) -> dict[str, float]:
        """Return the level, and backoffs and seconds of waiting since the last call."""
        waited, backoffs = self.waited, self.concurrency.backoffs - self._reported
        self.waited, self._reported = 0.0, self.concurrency.backoffs
        return {
            "service/concurrency": float(self.concurrency.limit),
            "service/backoffs": float(backoffs),
            "service/queue_wait": waited,
        }

    async def _enter(self, replies: int) -> None:
        if not self._queue and self._fits(replies):
            self.in_flight += replies
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((replies, admitted))
        since = self.clock()
        try:
            with waiting():
                await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():  # it has its slot already
                self.in_flight -= replies
            self._admit()
            raise
        finally:
            self.waited += self.clock() - since

    def _fits(self, replies: int) -> bool:
        return self.in_flight == 0 or self.in_flight + replies <= self.concurrency.limit

    def _admit(self) -> None:
        while self._queue:
            replies, admitted = self._queue[0]
            if not admitted.done():  # else it was cancelled while it waited
                if not self._fits(replies):
                    return
                self.in_flight += replies
                admitted.set_result(None)
            self._queue.popleft()


@define(eq=False)
class LimitedSamplingClient:
    """A sampling client behind a limiter. See :class:`rlc.service.interface.SamplingClient`."""

    client: SamplingClient
    limiter: ConcurrencyLimiter

    async def sample(
        self, prompt: types.ModelInput, num_samples: int, *args: Any, **kwargs: Any
    ) -> types.SampleResponse:
        async with self.limiter.slot(num_samples) as answer:
            response = await self.client.sample(prompt, num_samples, *args, **kwargs)
            answer.tokens = sum(len(sequence.tokens) for sequence in response.sequences)
            answer.tokens += len(response.prompt_logprobs or ())
        return response

    async def compute_logprobs(self, prompt: types.ModelInput) -> list[float | None]:
        async with self.limiter.slot(1) as answer:
            logprobs = await self.client.compute_logprobs(prompt)
            answer.tokens = len(logprobs)
        return logprobs

    def get_tokenizer(self) -> Any:
        return self.client.get_tokenizer()


def fixed_limiter(most: int) -> ConcurrencyLimiter:
    """Return a limiter that always admits ``most`` replies at once."""
    return ConcurrencyLimiter(AdaptiveConcurrency(cap=most, adapts=False))
