"""Deadlines: of a service's answers, of a server out of reach, of a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

from attrs import define, field

from rlc.catalog.builtins.training import DEFAULT_DEADLINES
from rlc.plan.records import DeadlinesPlan, SftPlan, TrainPlan
from rlc.runtime.records import RunError
from rlc.service.errors import ServiceError, ServiceLostError

PING_SECONDS = 5.0  # of silence before a server is asked whether it is there, and between two asks

T = TypeVar("T")


@define(eq=False)
class Watchdog:
    """Waits for answers, all of them under one eye: while any is owed, the service may be silent
    for ``limits.request``, and out of reach for ``limits.unreachable``.

    ``ping`` raises ServiceError while the server cannot be reached; None: it cannot be far away.
    """

    note: Callable[[str], None]
    ping: Callable[[], Awaitable[None]] | None = None
    limits: DeadlinesPlan = DEFAULT_DEADLINES
    every: float = PING_SECONDS
    _owed: dict[asyncio.Future[Any], tuple[str, float]] = field(factory=dict, init=False)
    _heard: float = field(default=float("-inf"), init=False)
    _away_since: float | None = field(default=None, init=False)
    _eye: asyncio.Task[None] | None = field(default=None, init=False)
    _lost: ServiceLostError | None = field(default=None, init=False)

    async def until(self, what: str, answer: Awaitable[T]) -> T:
        """The answer. Raises ServiceLostError, naming ``what`` is owed longest, once the service
        is given up."""
        future = asyncio.ensure_future(answer)
        self._owed[future] = what, _now()
        if self._eye is None or self._eye.done():
            self._eye = asyncio.create_task(self._look())
        try:
            return await future
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if self._lost is None or (current is not None and current.cancelling()):
                raise
            raise self._lost from None
        finally:
            del self._owed[future]
            if self._lost is None:
                self.heard()

    def limit(self, limits: DeadlinesPlan) -> None:
        """Other limits hold from now on."""
        self.limits = limits
        if self._eye is not None:
            self._eye.cancel()
            self._eye = asyncio.create_task(self._look())

    def heard(self) -> None:
        """The service has answered something, or says itself why it does not."""
        self._heard, self._away_since = _now(), None

    def owed(self) -> str:
        """What is waited for longest, in words."""
        if not self._owed:
            return "nothing"
        what, asked = next(iter(self._owed.values()))
        others = len(self._owed) - 1
        more = f", and {others:,} more" if others else ""
        return f"{what} (asked {_now() - asked:.0f} s ago{more})"

    async def _look(self) -> None:
        """Ends when nothing is owed any more."""
        while self._owed and self._lost is None:
            silent_since = max(self._heard, next(iter(self._owed.values()))[1])
            left = silent_since + self.limits.request - _now()
            if left <= 0:
                self._give_up(
                    f"the service has answered nothing for {said(self.limits.request)}, "
                    f"and owes {self.owed()}",
                    "the run can be resumed; `deadlines(request = …)` allows more",
                )
            elif self.ping is None:
                await asyncio.sleep(left)
            else:
                pause = min(self.every, self.limits.unreachable)
                await asyncio.sleep(min(left, pause))
                if self._owed and _now() - self._heard >= pause:
                    await self._reach(self.ping)

    async def _reach(self, ping: Callable[[], Awaitable[None]]) -> None:
        try:
            await ping()
        except ServiceError as error:
            if self._away_since is None:
                self._away_since = _now()
                self.note(f"{error}; trying for {said(self.limits.unreachable)}")
            elif _now() - self._away_since >= self.limits.unreachable:
                self._give_up(f"{error}; it owes {self.owed()}", error.hint)
        else:
            self._away_since = None

    def _give_up(self, message: str, hint: str | None) -> None:
        self._lost = ServiceLostError(message, hint)
        for future in list(self._owed):
            future.cancel()


def _now() -> float:
    return asyncio.get_running_loop().time()


def said(seconds: float) -> str:
    """``15 minutes``, ``1 minute``, ``2.5 seconds``."""
    number, unit = (seconds / 60, "minute") if seconds >= 60 else (seconds, "second")
    return f"{number:g} {unit}{'s' * (number != 1)}"


@define(eq=False)
class StepDeadline:
    """Ends a stage whose step takes too long. ``owed`` says what the service owes then."""

    stage: TrainPlan | SftPlan
    owed: Callable[[], str]
    _timeout: asyncio.Timeout = field(factory=lambda: asyncio.timeout(None), init=False)
    _timer: asyncio.TimerHandle | None = field(default=None, init=False)
    _error: RunError | None = field(default=None, init=False)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """While the block runs. Raises RunError where a step is overdue."""
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
        """A step begins."""
        seconds = self.stage.deadlines.step
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._end, seconds)

    def stop(self) -> None:
        """The step is done."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self, seconds: float) -> None:
        self._error = RunError(
            f"a step of `{self.stage.name}` took longer than {said(seconds)}; the service owed "
            f"{self.owed()}",
            "the run can be resumed; `deadlines(step = …)` allows more",
        )
        self._timeout.reschedule(asyncio.get_running_loop().time())


@define(eq=False)
class WatchedCall(Generic[T]):
    """An answer to a request that is on its way. Unlike a coroutine it may be left unawaited."""

    watch: Watchdog
    what: str
    answer: Awaitable[T]

    def __await__(self) -> Generator[Any, None, T]:
        return self.watch.until(self.what, self.answer).__await__()
