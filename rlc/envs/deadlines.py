"""Structured concurrency: deadlines whose clock stops while code waits for a free place.

``async with Deadline(seconds, what)`` raises :class:`OverdueError` when its seconds are over. Code
within that only queues says so: ``with waiting(): await free.wait()``, or ``async with
place(slots)`` for one of a limited number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from rlc.chat import EnvError
from rlc.plan import elapsed

_T = TypeVar("_T")


class OverdueError(EnvError):
    """Something took longer than its deadline."""

    cause = "timeout"


class Deadline:
    """Measure a block, and end it after so many seconds of work (None: never): raise OverdueError
    with ``what`` as its subject. ``worked`` and ``waited`` are wall seconds, valid after the block.
    An episode has many, so there is no generator behind them."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self.worked = self.waited = self._left = 0.0
        self._seconds = seconds
        self._what = what
        self._waiters = 0

    async def __aenter__(self) -> Deadline:
        self._timer = asyncio.timeout(self._seconds)
        self._started = asyncio.get_running_loop().time()
        self._token = _AROUND.set((*_AROUND.get(), self))
        await self._timer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        late = error
        try:
            await self._timer.__aexit__(kind, error, trace)
        except TimeoutError as raised:
            late = raised
        finally:
            _AROUND.reset(self._token)
            now = asyncio.get_running_loop().time()
            self.worked = now - self._started - self.waited
        if isinstance(late, TimeoutError) and self._timer.expired():
            limit = elapsed(self._seconds or 0.0)
            raise OverdueError(f"{self._what} took longer than {limit}") from late

    def pause(self) -> None:
        """Stop the clock, if it runs."""
        self._waiters += 1
        if self._waiters > 1:
            return
        self._since = asyncio.get_running_loop().time()
        if not self._timer.expired() and (when := self._timer.when()) is not None:
            self._left = when - self._since
            self._timer.reschedule(None)

    def resume(self, renewed: bool = False) -> None:
        """End one ``pause``; the last restarts the clock, ``renewed`` with all of its seconds."""
        self._waiters -= 1
        if self._waiters:
            return
        now = asyncio.get_running_loop().time()
        self.waited += now - self._since
        if self._seconds is not None and not self._timer.expired():
            self._timer.reschedule(now + (self._seconds if renewed else self._left))


_AROUND: ContextVar[tuple[Deadline, ...]] = ContextVar("spans", default=())


@contextmanager
def waiting() -> Iterator[None]:
    """Stop the clocks of the deadlines around while the block waits for a free place."""
    around = _AROUND.get()
    for one in around:
        one.pause()
    try:
        yield
    finally:
        for one in around:
            one.resume()


@asynccontextmanager
async def place(places: asyncio.Semaphore | asyncio.Lock) -> AsyncIterator[None]:
    """Hold one of the places; the deadlines around do not count the wait for it as work."""
    with waiting():
        await places.acquire()
    try:
        yield
    finally:
        places.release()


async def all_of(coroutines: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines concurrently; the first failure cancels the others and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        first = first_cause(failures)
        raise first from first.__cause__  # not the group
    return [task.result() for task in tasks]


def first_cause(error: BaseException) -> BaseException:
    """Return the first leaf of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
