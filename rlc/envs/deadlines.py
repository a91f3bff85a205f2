"""Deadlines that stand still while somebody waits for a free place, and measure what they span.

``async with span(seconds, what) as spent`` raises :class:`OverdueError` when its seconds are over.
Code within, however deep, that only queues says so: ``with waiting(): await slots.acquire()``.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar

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


@asynccontextmanager
async def span(seconds: float | None, what: str) -> AsyncIterator[Span]:
    """Measure, and end after so many seconds of work (None: never). Raises OverdueError with
    ``what`` as its subject."""
    timer = None if seconds is None else asyncio.timeout(seconds)
    spent, started = Span(timer=timer), asyncio.get_running_loop().time()
    token = _AROUND.set((*_AROUND.get(), spent))
    try:
        if timer is None:
            yield spent
            return
        try:
            async with timer:
                yield spent
        except TimeoutError as error:
            if not timer.expired():
                raise
            raise OverdueError(f"{what} took longer than {seconds:g} s") from error
    finally:
        _AROUND.reset(token)
        spent.worked = asyncio.get_running_loop().time() - started - spent.waited


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
