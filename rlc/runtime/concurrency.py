"""Structured concurrency, and computations that do not hold up the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import ParamSpec, TypeVar

from attrs import define, field

from rlc.envs import all_of, first_cause
from rlc.service import pending_call

__all__ = ["EventLoopYield", "all_of", "first_cause", "in_thread"]

P = ParamSpec("P")
T = TypeVar("T")

# Not the loop's own executor: an environment that hangs in that must not hold up the run.
_THREADS = ThreadPoolExecutor(2, thread_name_prefix="rlc-in-thread")
_AT_A_TIME = 0.005  # seconds of computation between two rounds of the event loop


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a long computation, made in a thread.

    It must change nothing that others read. The service is told that more requests follow.
    """
    with pending_call(ours=True):
        return await asyncio.wrap_future(_THREADS.submit(function, *args, **kwargs))


@define(eq=False)
class EventLoopYield:
    """Spreads the short computations of many coroutines over rounds of the event loop.

    Await :meth:`if_due` before each computation. If a thousand replies arrive at once, they are
    processed in order, in as many rounds of the loop as it takes.
    """

    _round_began: float = field(default=0.0, init=False)
    _queue: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    async def if_due(self) -> None:
        """Yield to the event loop, if this round of it has no time left."""
        if not self._queue.locked() and self._has_time():
            return
        # Those in the queue will send requests: a service that answers in waves has to know.
        with pending_call(ours=True):
            async with self._queue:
                if not self._has_time():
                    await asyncio.sleep(0)
                    self._round_began = perf_counter()

    def _has_time(self) -> bool:
        return perf_counter() - self._round_began < _AT_A_TIME
