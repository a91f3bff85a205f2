"""Deadlines that stand still while somebody waits for a free place, and measure what they span.

``async with span(seconds, what) as spent`` raises :class:`OverdueError` when its seconds are over.
Code within, however deep, that only queues says so: ``with waiting(): await slots.acquire()``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from attrs import define, field

from rlc.envs.base import EnvError


class OverdueError(EnvError):
    """Something took longer than it may."""

    cause = "timeout"


@define(eq=False)
class Span:
    """``worked`` and ``waited`` are wall seconds, right once the span is over."""

    worked: float = 0.0
    waited: float = 0.0
    _timer: asyncio.Timeout | None = field(default=None)
    _left: float = field(default=0.0, init=False)
    _waiters: int = field(default=0, init=False)
    _since: float = field(default=0.0, init=False)

    def pause(self) -> None:
        """Somebody within begins to wait; the clock stops with the first."""
        self._waiters += 1
        if self._waiters > 1:
            return
        self._since = asyncio.get_running_loop().time()
        if self._timer is not None and (when := self._timer.when()) is not None:
            self._left = when - self._since
            if not self._timer.expired():
                self._timer.reschedule(None)

    def go_on(self) -> None:
        """One of those who wait is done; the clock goes on with the last."""
        self._waiters -= 1
        if self._waiters:
            return
        now = asyncio.get_running_loop().time()
        self.waited += now - self._since
        if self._timer is not None and not self._timer.expired():
            self._timer.reschedule(now + self._left)


_AROUND: ContextVar[tuple[Span, ...]] = ContextVar("spans", default=())


class span:  # noqa: N801 (used as a function; there are many in an episode, so no generator)
    """Measure, and end after so many seconds of work (None: never). Raises OverdueError with
    ``what`` as its subject."""

    __slots__ = ("_seconds", "_spent", "_started", "_token", "_what")

    def __init__(self, seconds: float | None, what: str) -> None:
        self._seconds = seconds
        self._what = what

    async def __aenter__(self) -> Span:
        timer = None if self._seconds is None else asyncio.timeout(self._seconds)
        self._spent = Span(timer=timer)
        self._started = asyncio.get_running_loop().time()
        self._token = _AROUND.set((*_AROUND.get(), self._spent))
        if timer is not None:
            await timer.__aenter__()
        return self._spent

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        timer, late = self._spent._timer, error
        try:
            if timer is not None:
                await timer.__aexit__(kind, error, trace)
        except TimeoutError as raised:
            late = raised
        finally:
            _AROUND.reset(self._token)
            now = asyncio.get_running_loop().time()
            self._spent.worked = now - self._started - self._spent.waited
        if isinstance(late, TimeoutError) and timer is not None and timer.expired():
            raise OverdueError(f"{self._what} took longer than {self._seconds:g} s") from late


@contextmanager
def waiting() -> Iterator[None]:
    """Waiting for a free place: the spans around do not count it as work."""
    around = _AROUND.get()
    for one in around:
        one.pause()
    try:
        yield
    finally:
        for one in around:
            one.go_on()
