"""Structured concurrency, and short pauses of the event loop."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, ParamSpec, TypeVar

from attrs import define, field

from rlc.service import pending_call

P = ParamSpec("P")
T = TypeVar("T")

# Not the loop's own executor: an environment that hangs in that must not hold up the run.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="rlc-in-thread")
_AT_A_TIME = 0.005  # seconds of computation between two rounds of the event loop


def mark_seen(task: asyncio.Future[Any]) -> None:
    """Let asyncio not warn of a failed task that nobody may await: a callback of its end."""
    if not task.cancelled():
        task.exception()


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait until they have ended."""
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a long computation in a thread, which must change no shared data."""
    with pending_call(ours=True):
        return await asyncio.wrap_future(_THREADS.submit(function, *args, **kwargs))


@define(eq=False)
class EventLoopYield:
    """Spreads the computations of coroutines that await :meth:`if_due` over event loop rounds."""

    _round_began: float = field(default=0.0, init=False)
    _queue: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def if_due(self) -> None:
        """Yield to the event loop if this round of it has no time left."""
        if not self._queue.locked() and self._has_time():
            return
        # Those in the queue will send requests: a service that answers in batches has to know.
        with pending_call(ours=True):
            async with self._queue:
                if not self._has_time():
                    await asyncio.sleep(0)
                    self._round_began = perf_counter()

    def _has_time(self) -> bool:
        return perf_counter() - self._round_began < _AT_A_TIME


# Collect a few hundred objects at a time, since a pass takes as long as it has objects to visit
# and most objects of the episodes in play stay; visit all objects only rarely.
_THRESHOLDS = (500, 2, 1_000)
_SWITCH_INTERVAL = 0.002  # seconds until a computing thread yields; Python's default is 0.005

_before: list[tuple[tuple[int, int, int], float]] = []  # settings before each running stage


@contextmanager
def short_gc_pauses() -> Iterator[None]:
    """Exclude all existing objects from garbage collection, as visiting hundreds of thousands of
    them takes a third of a second, and collect in small passes. Let computing threads yield sooner,
    as the event loop waits for each in turn. Safe to nest; at the end all settings are as before.
    """
    if not _before:
        gc.freeze()
    _before.append((gc.get_threshold(), sys.getswitchinterval()))
    gc.set_threshold(*_THRESHOLDS)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    try:
        yield
    finally:
        thresholds, interval = _before.pop()  # the first entry goes last, whoever ends first
        if not _before:
            gc.set_threshold(*thresholds)
            gc.unfreeze()
            sys.setswitchinterval(interval)
