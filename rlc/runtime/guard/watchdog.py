"""Deadlines: of a service's answers, of an unreachable server, of a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from attrs import define, field

from rlc.catalog import DEFAULT_DEADLINES
from rlc.plan import DeadlinesPlan, Training, elapsed
from rlc.runtime.records import RunError
from rlc.service import ServiceError, ServiceLostError

PING_SECONDS = 5.0  # of silence before a server is pinged, and between two pings

T = TypeVar("T")


@define(eq=False)
class Watchdog:
    """Waits for the answers of a service and gives the service up if it fails to send any.

    While requests are pending, it may be silent for ``limits.request`` and unreachable for
    ``limits.unreachable``. ``ping`` raises ServiceError while the server cannot be reached; None
    for a service that needs no network.
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
        """Return the answer; ``what`` names it in messages.

        Raise ServiceLostError once the service is given up.
        """
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
        """Apply other limits from now on."""
        self.limits = limits
        if self._watcher is not None:
            self._watcher.cancel()
            self._watcher = asyncio.create_task(self._watch())

    def heard(self) -> None:
        """Record that the service answered something, or said why it does not."""
        self._heard, self._away_since = _now(), None

    def owed(self) -> str:
        """Describe the answer that has been pending longest."""
        if not self._pending:
            return "nothing"
        what, asked = next(iter(self._pending.values()))
        others = len(self._pending) - 1
        more = f", and {others:,} more" if others else ""
        return f"{what} (asked {_now() - asked:.0f} s ago{more})"

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
                if self._pending and _now() - self._heard >= pause:
                    await self._reach(self.ping)

    async def _reach(self, ping: Callable[[], Awaitable[None]]) -> None:
        try:
            await ping()
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
    """The answer to a pending request. Unlike a coroutine it may be left unawaited."""

    watchdog: Watchdog
    what: str
    answer: Awaitable[T]

    def __await__(self) -> Generator[Any, None, T]:
        return self.watchdog.until(self.what, self.answer).__await__()


@define(eq=False)
class StepDeadline:
    """Ends a stage whose step takes too long. ``owed`` describes what the service then owes."""

    stage: Training
    owed: Callable[[], str]
    _timeout: asyncio.Timeout = field(factory=lambda: asyncio.timeout(None), init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _error: RunError | None = field(default=None, init=False)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Hold the deadline of each step within the block. Raise RunError for an overdue one."""
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
