"""Blocking calls made by daemon threads: cheap if they are fast, and never in the way if they hang.

A call that hangs in a ThreadPoolExecutor keeps its place in the pool and the program from ending.
Here it is abandoned with its thread, and another thread takes the place.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from attrs import define, field

from rlc.chat import EnvError

MOST_THREADS = 32
_SLOW = 0.01  # seconds that all threads must be busy before another is started
_IDLE = 5.0  # seconds without a call after which a thread ends
_PATIENCE = 5.0  # seconds that closing an event loop waits for code that blocks it
_T = TypeVar("_T")


@define(eq=False)
class _LoopBridge:
    """Passes calls between an event loop and the threads in batches, once a round of the loop:
    waking the other side for each call would cost more than most calls."""

    loop: asyncio.AbstractEventLoop
    waking: bool = False  # the threads, at the end of this round
    watching: bool = False
    _done: deque[_Call] = field(factory=deque, init=False)
    _scheduled: bool = field(default=False, init=False)

    def hand_back(self, call: _Call) -> None:
        """Return a call that has been made; called in a thread."""
        self._done.append(call)
        if self._scheduled:
            return
        self._scheduled = True
        try:
            self.loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            if not self.loop.is_closed():  # else nobody waits for the call
                raise

    def _settle(self) -> None:
        self._scheduled = False  # first: a call handed back from here on schedules anew
        while self._done:
            call = self._done.popleft()
            if call.result.done():
                continue
            if call.error is None:
                call.result.set_result(call.outcome)
            else:
                call.result.set_exception(call.error)


@define(eq=False)
class _Call:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    bridge: _LoopBridge
    result: asyncio.Future[Any]
    abandoned: bool = False
    thread: _Thread | None = None
    outcome: Any = None
    error: BaseException | None = None

    def make(self) -> None:
        try:
            self.outcome = self.function(*self.args)
        except BaseException as raised:
            self.error = raised
            # A future takes no StopIteration, and an environment must not end the program.
            if isinstance(raised, StopIteration) or not isinstance(raised, Exception):
                self.error = EnvError(f"the environment raised {type(raised).__name__}")
                self.error.__cause__ = raised


@define(eq=False)
class _Thread:
    """``since`` is when its call began; 0 between calls."""

    since: float = 0.0
    left: bool = False


@define(eq=False)
class ThreadWorkers:
    """Up to ``most`` threads. One is enough while calls are fast: another is started only when all
    have been busy for ten milliseconds with calls waiting, and ends when there is nothing to do."""

    most: int = MOST_THREADS
    _calls: deque[_Call] = field(factory=deque, init=False, repr=False)
    _threads: set[_Thread] = field(factory=set, init=False)
    _wake: threading.Condition = field(factory=threading.Condition, init=False)
    _bridge: _LoopBridge | None = field(default=None, init=False)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return what the function returns, or raise what it raises. A call that is cancelled is
        abandoned: if it has begun, its thread no longer counts, and ends with it."""
        loop = asyncio.get_running_loop()
        bridge = self._bridge
        if bridge is None or bridge.loop is not loop:
            bridge = self._bridge = _LoopBridge(loop)
        call = _Call(function, args, bridge, loop.create_future())
        self._calls.append(call)
        if not bridge.waking:
            bridge.waking = True
            loop.call_soon(self._wake_threads, bridge)
        try:
            return await call.result
        except asyncio.CancelledError:
            with self._wake:
                call.abandoned, thread = True, call.thread
                if thread is not None:
                    thread.left = True
                    self._threads.discard(thread)
                    if self._calls and not self._threads:
                        self._start()
            raise

    def _wake_threads(self, bridge: _LoopBridge) -> None:
        bridge.waking = False
        with self._wake:
            if not self._threads:
                self._start()
            self._wake.notify(len(self._calls))
        if not bridge.watching:
            bridge.watching = True
            bridge.loop.call_later(_SLOW, self._watch, bridge)

    def _watch(self, bridge: _LoopBridge) -> None:
        """Start another thread if calls wait and no thread has taken one for a while."""
        with self._wake:
            bridge.watching = bool(self._calls)
            latest = time.monotonic() - _SLOW
            slow = all(0 < thread.since < latest for thread in self._threads)
            if bridge.watching and slow and len(self._threads) < self.most:
                self._start()
        if bridge.watching:
            bridge.loop.call_later(_SLOW, self._watch, bridge)

    def _start(self) -> None:
        thread = _Thread()
        self._threads.add(thread)
        threading.Thread(target=self._work, args=(thread,), name="rlc-env", daemon=True).start()

    def _work(self, thread: _Thread) -> None:
        while (call := self._next(thread)) is not None:
            call.make()
            with self._wake:
                call.thread, thread.since = None, 0.0
            call.bridge.hand_back(call)

    def _next(self, thread: _Thread) -> _Call | None:
        with self._wake:
            while not thread.left:
                if self._calls:
                    call = self._calls.popleft()
                    if not call.abandoned:
                        call.thread, thread.since = thread, time.monotonic()
                        return call
                elif not self._wake.wait(_IDLE) and not self._calls:
                    self._threads.discard(thread)
                    return None
        return None


@define(eq=False)
class EventLoopThread:
    """An event loop in a thread of its own, for async code that may block."""

    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    async def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine, which is cancelled with the caller."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._running())
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the thread. Safe to call twice."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_PATIENCE)
        if not thread.is_alive():
            loop.close()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            target = self._loop.run_forever
            self._thread = threading.Thread(target=target, name="rlc-environments", daemon=True)
            self._thread.start()
        return self._loop


@define(eq=False)
class GlobalRngLock:
    """A lock that can be taken from its holder, whose thread may hang."""

    _holder: object | None = field(default=None, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    @contextmanager
    def held_by(self, holder: object) -> Iterator[None]:
        """Wait until nobody else holds the lock, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None)
            self._holder = holder
        try:
            yield
        finally:
            self.release(holder)

    def release(self, holder: object) -> None:
        with self._changed:
            if self._holder is holder:
                self._holder = None
                self._changed.notify()


GLOBAL_RNG = GlobalRngLock()
