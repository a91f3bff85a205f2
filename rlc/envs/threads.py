"""Blocking calls made by daemon threads: cheap where they are fast, never in the way where not.

Not a ThreadPoolExecutor, because a call that hangs must neither keep a place in the pool nor the
program from ending: it is given up with its thread, and another thread takes the place.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from attrs import define, field

from rlc.envs.base import EnvError

MOST_THREADS = 32
_SLOW = 0.001  # seconds that all threads must be busy before there is another
_IDLE = 5.0  # seconds without a call after which a thread ends


@define(eq=False)
class _Call:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Any]
    given_up: bool = False
    thread: _Thread | None = None

    def make(self) -> None:
        """In the thread: make the call, and tell the loop."""
        try:
            outcome, error = self.function(*self.args), None
        except Exception as raised:
            outcome, error = None, _storable(raised)
        except BaseException as raised:  # of an environment that tries to end the program
            outcome, error = None, EnvError(f"the environment raised {type(raised).__name__}")
        try:
            self.loop.call_soon_threadsafe(self._settle, outcome, error)
        except RuntimeError:
            if not self.loop.is_closed():  # else nobody is left to tell
                raise

    def _settle(self, outcome: Any, error: Exception | None) -> None:
        if self.result.done():
            return
        if error is None:
            self.result.set_result(outcome)
        else:
            self.result.set_exception(error)


def _storable(error: Exception) -> Exception:
    """A future takes every exception but this one."""
    if isinstance(error, StopIteration):
        return EnvError("the environment raised StopIteration")
    return error


@define(eq=False)
class _Thread:
    """``since`` is when its call began; 0 between calls."""

    since: float = 0.0
    left: bool = False


@define(eq=False)
class Threads:
    """Up to ``most`` threads. One is enough while calls are fast: further ones come only once all
    have been busy for a millisecond with calls waiting, and go when there is nothing to do.

    ``on_given_up`` is told the identity of a thread whose call was given up while it ran.
    """

    most: int = MOST_THREADS
    on_given_up: Callable[[int], None] | None = None
    _calls: SimpleQueue[_Call] = field(factory=SimpleQueue, init=False)
    _threads: set[_Thread] = field(factory=set, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _watching: bool = field(default=False, init=False)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function gives, or raises. A call that is cancelled is given up: if it has
        begun, its thread no longer counts, and ends with it."""
        loop = asyncio.get_running_loop()
        call = _Call(function, args, loop, loop.create_future())
        self._submit(call)
        try:
            return await call.result
        except asyncio.CancelledError:
            self._give_up(call)
            raise

    def _submit(self, call: _Call) -> None:
        with self._lock:
            self._calls.put(call)
            if not self._threads:
                self._start()
        if not self._watching and self._calls.qsize() > 1:
            self._watching = True
            call.loop.call_later(_SLOW, self._watch, call.loop)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Another thread, if calls wait and no thread has come to its next one for a while."""
        with self._lock:
            self._watching = not self._calls.empty()
            latest = time.monotonic() - _SLOW
            slow = all(0 < thread.since < latest for thread in self._threads)
            if self._watching and slow and len(self._threads) < self.most:
                self._start()
        if self._watching:
            loop.call_later(_SLOW, self._watch, loop)

    def _start(self) -> None:
        thread = _Thread()
        self._threads.add(thread)
        threading.Thread(target=self._work, args=(thread,), name="rlc-env", daemon=True).start()

    def _work(self, thread: _Thread) -> None:
        while not thread.left:
            try:
                call = self._calls.get(timeout=_IDLE)
            except Empty:
                with self._lock:
                    if self._calls.empty():
                        self._threads.discard(thread)
                        return
                continue
            with self._lock:
                if call.given_up:
                    continue
                call.thread, thread.since = thread, time.monotonic()
            call.make()
            with self._lock:
                call.thread, thread.since = None, 0.0

    def _give_up(self, call: _Call) -> None:
        with self._lock:
            call.given_up, thread = True, call.thread
            if thread is None:
                return
            thread.left = True
            self._threads.discard(thread)
            if not self._calls.empty() and not self._threads:
                self._start()
