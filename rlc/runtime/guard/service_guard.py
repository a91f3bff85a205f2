"""A service with deadlines: each request is answered in time, or ends the run.

Guards the clients of any service; their methods are those of :mod:`rlc.service.interface`. A remote
service's sampling is limited as well (:mod:`rlc.runtime.guard.adaptive_concurrency`). The embedded
engine has a queue of its own and is limited only if the recipe says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar, cast

from attrs import define, field

from rlc.catalog import DEFAULT_DEADLINES
from rlc.plan import DeadlinesPlan, Training, elapsed
from rlc.runtime.guard.adaptive_concurrency import (
    MOST,
    ConcurrencyLimiter,
    LimitedSamplingClient,
    fixed_limiter,
)
from rlc.runtime.records import RunError
from rlc.service import (
    RemoteService,
    SamplingClient,
    ServiceClient,
    ServiceError,
    ServiceLostError,
    TrainingClient,
)

PING_SECONDS = 5.0  # of silence before a server is pinged, and between two pings

T = TypeVar("T")


@define(eq=False)
class Watchdog:
    """Waits for the answers of a service, and gives it up when it is silent for ``limits.request``
    or unreachable for ``limits.unreachable`` while requests are pending.

    ``ping`` raises ServiceError while the server cannot be reached; None for a service that needs
    no network.
    """

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
        """Return the answer, called ``what`` in messages. Raise ServiceLostError once the service
        is given up."""
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

    service: ServiceClient
    watchdog: Watchdog
    limiter: ConcurrencyLimiter | None

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
        watched = cast(SamplingClient, _WatchedClient(await answer, self))
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
        return {} if self.limiter is None else self.limiter.metrics()
