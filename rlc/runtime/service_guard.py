"""A service with deadlines and limits: each request is answered in time, or ends the run.

Guards the clients of any service; their methods are those of :mod:`rlc.service.interface`. The
sampling of a remote service is limited as well: :class:`AdaptiveConcurrency` decides how many
replies are sampled at once, a state machine without a clock of its own, and
:class:`ConcurrencyLimiter` delays requests accordingly, first come, first served, so that all
episodes advance, whatever their environment. The embedded engine has a queue of its own and is
limited only if the recipe says so.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from attrs import define, field

from rlc.catalog import DEFAULT_DEADLINES
from rlc.envs import waiting
from rlc.plan import DeadlinesPlan, Training, elapsed
from rlc.runtime.records import RunError
from rlc.service import (
    RemoteService,
    SamplingClient,
    ServiceClient,
    ServiceError,
    ServiceLostError,
    TrainingClient,
)

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
        """Wait for the slot of a request, and keep it in the block, which sets its tokens."""
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


def unlimited(client: SamplingClient) -> SamplingClient:
    """Return the client behind any limiters."""
    while isinstance(client, LimitedSamplingClient):
        client = client.client
    return client


def unguarded(client: SamplingClient) -> SamplingClient:
    """Return the client of the service itself."""
    client = unlimited(client)
    return client.client if isinstance(client, _WatchedClient) else client


def fixed_limiter(most: int) -> ConcurrencyLimiter:
    """Return a limiter that always admits ``most`` replies at once."""
    return ConcurrencyLimiter(AdaptiveConcurrency(cap=most, adapts=False))


PING_SECONDS = 5.0  # of silence before a server is pinged, and between two pings

T = TypeVar("T")


@define(eq=False)
class Watchdog:
    """Waits for the answers of a service, and gives it up when it is silent for ``limits.request``
    or unreachable for ``limits.unreachable`` while requests are pending. ``ping`` raises
    ServiceError while the server cannot be reached; None without a network."""

    note: Callable[[str], None]
    ping: Callable[[], Awaitable[None]] | None = None
    limits: DeadlinesPlan = DEFAULT_DEADLINES
    every: float = PING_SECONDS
    _pending: dict[asyncio.Future[Any], tuple[str, float]] = field(factory=dict, init=False)
    _heard: float = field(default=float("-inf"), init=False)
    _away_since: float | None = field(default=None, init=False)
    _watcher: asyncio.Task[None] | None = field(default=None, init=False)
    _lost: ServiceLostError | None = field(default=None, init=False)

    async def until(self, what: str, answer: Awaitable[T]) -> T:
        """Return the answer, or raise ServiceLostError; ``what`` names it in messages."""
        future = asyncio.ensure_future(answer)
        self._pending[future] = what, _now()
        if self._watcher is None or self._watcher.done():
            self._watcher = asyncio.create_task(self._watch())
        try:
            return await future
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._lost is None or (current is not None and current.cancelling()):
                raise
            raise self._lost from None
        finally:
            del self._pending[future]
            if self._lost is None:
                self.heard()

    def limit(self, limits: DeadlinesPlan) -> None:
        self.limits = limits
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = asyncio.create_task(self._watch())

    def heard(self) -> None:
        """Record a sign of life of the service."""
        self._heard, self._away_since = _now(), None

    @property
    def pending(self) -> int:
        """The number of pending answers."""
        return len(self._pending)

    def owed(self) -> str:
        """Describe the answer that has been pending longest."""
        if not self._pending:
            return "nothing"
        what, since = next(iter(self._pending.values()))
        others = len(self._pending) - 1
        more = f", and {others:,} more" if others else ""
        return f"{what} (asked {_now() - since:.0f} s ago{more})"

    async def _watch(self) -> None:
        """Check the deadlines until no answer is pending."""
        while self._pending and self._lost is None:
            silent_since = max(self._heard, next(iter(self._pending.values()))[1])
            left = silent_since + self.limits.request - _now()
            if left <= 0:
                self._give_up(
                    f"the service has answered nothing for {elapsed(self.limits.request)}, "
                    f"and owes {self.owed()}",
                    "the run can be resumed; `deadlines(request = …)` allows more",
                )
            elif self.ping is None:
                await asyncio.sleep(left)
            else:
                pause = min(self.every, self.limits.unreachable)
                await asyncio.sleep(min(left, pause))
                if not self._pending or _now() - self._heard < pause:
                    continue
                try:
                    await self.ping()
                except ServiceError as error:
                    if self._away_since is None:
                        self._away_since = _now()
                        self.note(f"{error}; trying for {elapsed(self.limits.unreachable)}")
                    elif _now() - self._away_since >= self.limits.unreachable:
                        self._give_up(f"{error}; it owes {self.owed()}", error.hint)
                else:
                    self._away_since = None

    def _give_up(self, message: str, hint: str | None) -> None:
        self._lost = ServiceLostError(message, hint)
        for future in list(self._pending):
            future.cancel()


@define(eq=False)
class WatchedCall(Generic[T]):
    """The answer to a request. Unlike a coroutine it need not be awaited."""

    watchdog: Watchdog
    what: str
    answer: Awaitable[T]

    def __await__(self) -> Generator[Any, None, T]:
        return self.watchdog.until(self.what, self.answer).__await__()


@define(eq=False)
class StepDeadline:
    """Ends a stage whose step takes too long. ``owed`` describes what the service owes."""

    stage: Training
    owed: Callable[[], str]
    _timeout: asyncio.Timeout = field(factory=lambda: asyncio.timeout(None), init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _error: RunError | None = field(default=None, init=False)

    @asynccontextmanager
    async def enforced(self) -> AsyncIterator[None]:
        """Enforce the deadline of each step in the block: raise RunError for a late one."""
        try:
            async with self._timeout:
                yield
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error from None
        finally:
            self.stop()

    def start(self) -> None:
        seconds = self.stage.deadlines.step
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end, seconds)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, seconds: float) -> None:
        self._error = RunError(
            f"a step of `{self.stage.name}` took longer than {elapsed(seconds)}; the service owed "
            f"{self.owed()}",
            "the run can be resumed; `deadlines(step = …)` allows more",
        )
        self._timeout.reschedule(_now())


def _now() -> float:
    return asyncio.get_running_loop().time()


# The answers to each call, in words. Methods that are not here answer at once.
_OWED: dict[str, Callable[..., str]] = {
    "sample": lambda _prompt, num_samples, *_, **__: f"{num_samples} sampled replies",
    "compute_logprobs": lambda *_, **__: "logprobs",
    "forward": lambda data, *_, **__: f"the loss of {len(data):,} sequences",
    "forward_backward": lambda data, *_, **__: f"the gradient of {len(data):,} sequences",
    "forward_backward_custom": lambda data, *_, **__: f"the gradient of {len(data):,} sequences",
    "optim_step": lambda *_, **__: "an optimiser step",
    "save_state": lambda name, *_, **__: f"the checkpoint {name}",
    "save_weights_for_sampler": lambda name, *_, **__: f"the weights {name}",
    "save_weights_and_get_sampling_client": lambda *_, **__: "a snapshot of the weights",
    "create_custom_loss": lambda *_, **__: "a custom loss",
    "create_sampling_client": lambda *_, **__: "a sampling client",
    "create_lora_training_client": lambda base_model, *_, **__: f"an adapter of {base_model}",
    "create_training_client_from_adapter": lambda folder, *_, **__: f"the adapter in {folder}",
    "create_training_client_from_state": lambda path, *_, **__: f"the weights of {path}",
    "create_training_client_from_state_with_optimizer": lambda path, *_, **__: f"the state {path}",
    "delete_checkpoint": lambda path: f"the deletion of {path}",
}


@define(eq=False)
class _WatchedClient:
    """A client of any kind whose answers, and those of its clients, come in time."""

    client: Any
    guard: ServiceGuard

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)
        if name not in _OWED:
            return method

        def call(*args: Any, **kwargs: Any) -> Awaitable[Any]:
            what = _OWED[name](*args, **kwargs)
            answer = WatchedCall(self.guard.watchdog, what, method(*args, **kwargs))
            if name.endswith("sampling_client"):
                return self.guard.sampling(answer)
            return self.guard.training(answer) if "training_client" in name else answer

        return call


@define(eq=False)
class ServiceGuard:
    """Deadlines and limits of a service; ``limiter`` is None if sampling is not limited."""

    service: Any
    watchdog: Watchdog
    limiter: ConcurrencyLimiter | None
    # What other processes that sample for the run say of their limiters, and of what they wait for.
    elsewhere: Callable[[], Mapping[str, float]] = dict
    owed_elsewhere: Callable[[], str] = str

    @classmethod
    def of(cls, service: ServiceClient, note: Callable[[str], None]) -> ServiceGuard:
        """Guard a service; ``note`` reports that its server cannot be reached."""
        if isinstance(service, RemoteService):
            return cls(service, Watchdog(note, service.ping), ConcurrencyLimiter())
        return cls(service, Watchdog(note), None)

    @property
    def client(self) -> ServiceClient:
        return cast(ServiceClient, _WatchedClient(self.service, self))

    async def training(self, answer: Awaitable[TrainingClient]) -> TrainingClient:
        return cast(TrainingClient, _WatchedClient(await answer, self))

    async def sampling(self, answer: Awaitable[SamplingClient]) -> SamplingClient:
        return self.guarded(await answer)

    def guarded(self, client: SamplingClient) -> SamplingClient:
        """Return a sampling client whose answers come in time, and whose requests are limited."""
        watched = cast(SamplingClient, _WatchedClient(client, self))
        return watched if self.limiter is None else LimitedSamplingClient(watched, self.limiter)

    def begin(self, stage: Training) -> None:
        """Apply the deadlines and the concurrency of a stage from now on."""
        self.watchdog.limit(stage.deadlines)
        most = None if stage.rollouts is None else stage.rollouts.sampling.concurrency
        if isinstance(self.service, RemoteService):
            assert self.limiter is not None
            self.limiter.concurrency.cap = most or MOST
        else:
            self.limiter = None if most is None else fixed_limiter(most)

    def pressed(self) -> None:
        """Record that the service has too much to do, which is also a sign of life."""
        self.watchdog.heard()
        if self.limiter is not None:
            self.limiter.pressed()

    def metrics(self) -> dict[str, float]:
        own, others = {} if self.limiter is None else self.limiter.metrics(), self.elsewhere()
        if others:
            own.pop("service/concurrency", None)  # the level of those who sample
        return {name: own.get(name, 0.0) + others.get(name, 0.0) for name in {**own, **others}}

    def owed(self) -> str:
        """Describe the answer that has been pending longest, here or else elsewhere."""
        return (not self.watchdog.pending and self.owed_elsewhere()) or self.watchdog.owed()
