"""How many replies a service draws at once: raised while it answers, cut when it says "too many".

:class:`AdaptiveConcurrency` decides the level; it is a state machine without a clock of its own. :class:`Gate`
holds requests back accordingly, first come, first served: an episode asks for one reply at a time,
so between two turns of one every other waiting episode has its turn, of whatever environment.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from attrs import define, field

from rlc.envs.deadlines import waiting
from rlc.service.interface import SamplingClient

if TYPE_CHECKING:
    from tinker import types

START = 512  # replies at once before anything is known of a service
MOST = 8_192
_SHORTEST_COOLDOWN = 1.0  # seconds: the SDK's own pause after a refusal
_SMALLEST_WINDOW = 64  # replies that a comparison of latencies needs
_FORGET = 1.02  # what was best counts for less with every window: services change


@define
class _Window:
    """Replies that came while the gate was full, one after another."""

    since: float
    size: float  # replies that it lasts for
    replies: int = 0
    tokens: int = 0
    seconds: float = 0.0  # of waiting for them, summed


@define
class AdaptiveConcurrency:
    """The level: how many replies may be drawn at once. Times are monotonic seconds.

    Additive increase, multiplicative decrease: a refusal halves the level, at most once in the
    time that an answer takes, and it then grows by an eighth in each such time. Up to ``known``,
    a fifth below where it was last refused, it doubles instead; a refusal far below that is a
    storm's and says little of it, so that after the storm the old level is soon found again. The
    level only grows while requests wait for it.

    Latencies are compared by the token, over windows of answers. Where they have doubled, and yet
    no more tokens come a second than before, the level shrinks by a tenth, or by a fifth where far
    fewer come. With ``adapts = False`` the cap is the level, whatever comes.
    """

    cap: int = MOST
    adapts: bool = True
    level: float = START
    known: float = MOST
    backoffs: int = 0
    refused: bool = False  # whether it ever was
    _cut_at: float = float("-inf")
    _latency: float = 0.0  # of an answer, seconds, smoothed
    _window: _Window | None = None
    _fastest: float = float("inf")  # seconds a token
    _most: float = 0.0  # tokens a second
    _holds: bool = False  # whether the last window was too slow

    @property
    def limit(self) -> int:
        """Replies at once, at least one."""
        return max(1, min(self.cap, int(self.level))) if self.adapts else self.cap

    def answered(self, now: float, seconds: float, replies: int, tokens: int, full: bool) -> None:
        """A request was answered after ``seconds``; ``full``: others wait for its place."""
        self._latency += (seconds - self._latency) / 8 if self._latency else seconds
        if not full or not self.adapts:
            self._window = None
            return
        if not self._holds:
            steep = self.level < self.known
            self.level += replies * (1.0 if steep else max(1.0, self.level / 8) / self.level)
            self.level = min(self.level, float(self.cap))
        self._compare(now, seconds, replies, tokens)

    def pressed(self, now: float) -> None:
        """The service refused a request as too many, or says that its queue is full."""
        if not self.adapts or now - self._cut_at < max(_SHORTEST_COOLDOWN, self._latency):
            return
        if not self.refused or self.level >= self.known:
            self.known = 0.8 * self.level
        else:
            self.known *= 0.8 if 4 * self.level >= self.known else 0.97
        self.refused = True
        self._cut(now, 0.5)

    def _compare(self, now: float, seconds: float, replies: int, tokens: int) -> None:
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
        self._holds = slowness > 2 * self._fastest and rate < 1.05 * self._most
        if self._holds:
            self._cut(now, 0.8 if rate < 0.7 * self._most else 0.9)
            self.known = self.level
        self._fastest = min(self._fastest * _FORGET, slowness)
        self._most = max(self._most / _FORGET, rate)

    def _cut(self, now: float, factor: float) -> None:
        self.level = max(1.0, self.level * factor)
        self.backoffs += 1
        self._cut_at, self._window = now, None


@define(eq=False)
class ConcurrencyLimiter:
    """Lets requests through as far as its pace allows. A request that is larger than the level
    passes alone. One that is cancelled, waiting or under way, leaves its place to the next."""

    pace: AdaptiveConcurrency = field(factory=AdaptiveConcurrency)
    clock: Callable[[], float] = time.monotonic
    in_flight: int = 0  # replies
    waited: float = 0.0  # seconds, of all requests together
    _queue: deque[tuple[int, asyncio.Future[None]]] = field(factory=deque)
    _told: int = 0  # backoffs that are in earlier metrics

    @asynccontextmanager
    async def place(self, replies: int) -> AsyncIterator[_Answer]:
        """A place for a request of so many replies, until the block ends."""
        await self._enter(replies)
        answer, asked = _Answer(), self.clock()
        try:
            yield answer
            now, full = self.clock(), bool(self._queue)
            self.pace.answered(now, now - asked, replies, answer.tokens, full)
        finally:
            self.in_flight -= replies
            self._admit()

    def pressed(self) -> None:
        """The service is under pressure."""
        self.pace.pressed(self.clock())

    def metrics(self) -> dict[str, float]:
        """The level, and backoffs and seconds of waiting since this was last asked."""
        waited, backoffs = self.waited, self.pace.backoffs - self._told
        self.waited, self._told = 0.0, self.pace.backoffs
        return {
            "service/concurrency": float(self.pace.limit),
            "service/backoffs": float(backoffs),
            "service/queue_wait": waited,
        }

    async def _enter(self, replies: int) -> None:
        if not self._queue and self._fits(replies):
            self.in_flight += replies
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append((replies, turn))
        since = self.clock()
        try:
            with waiting():
                await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its place was given to it already
                self.in_flight -= replies
            self._admit()
            raise
        finally:
            self.waited += self.clock() - since

    def _fits(self, replies: int) -> bool:
        return self.in_flight == 0 or self.in_flight + replies <= self.pace.limit

    def _admit(self) -> None:
        while self._queue:
            replies, turn = self._queue[0]
            if turn.done():  # cancelled while it waited
                self._queue.popleft()
                continue
            if not self._fits(replies):
                return
            self._queue.popleft()
            self.in_flight += replies
            turn.set_result(None)


@define
class _Answer:
    """What came of a request; whoever made it fills it in."""

    tokens: int = 0


@define(eq=False)
class LimitedSamplingClient:
    """A sampling client behind a gate. See :class:`rlc.service.interface.SamplingClient`."""

    client: SamplingClient
    gate: ConcurrencyLimiter

    async def sample(
        self,
        prompt: types.ModelInput,
        num_samples: int,
        sampling_params: types.SamplingParams,
        include_prompt_logprobs: bool = False,
    ) -> types.SampleResponse:
        async with self.gate.place(num_samples) as answer:
            response = await self.client.sample(
                prompt, num_samples, sampling_params, include_prompt_logprobs
            )
            answer.tokens = sum(len(sequence.tokens) for sequence in response.sequences)
        return response

    async def compute_logprobs(self, prompt: types.ModelInput) -> list[float | None]:
        async with self.gate.place(1) as answer:
            logprobs = await self.client.compute_logprobs(prompt)
            answer.tokens = len(logprobs)
        return logprobs


def capped(client: SamplingClient, most: int | None) -> SamplingClient:
    """The client with at most so many replies at once; None: as it is."""
    return (
        client
        if most is None
        else LimitedSamplingClient(
            client, ConcurrencyLimiter(AdaptiveConcurrency(cap=most, adapts=False))
        )
    )
