"""Blocking calls made by daemon threads: cheap where they are fast, never in the way where not.

Not a ThreadPoolExecutor, because a call that hangs must neither keep a place in the pool nor the
program from ending: it is given up with its thread, and another thread takes the place.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from attrs import define, field

from rlc.envs.base import EnvError

MOST_THREADS = 32
_SLOW = 0.01  # seconds that all threads must be busy before there is another
_IDLE = 5.0  # seconds without a call after which a thread ends


@define(eq=False)
class _LoopBridge:
    """Where one event loop and the threads meet. Whatever is many goes over once a round of the
    loop: waking the other side for each call would cost more than most calls."""

    loop: asyncio.AbstractEventLoop
    waking: bool = False  # the threads, at the end of this round
    watching: bool = False
    _done: deque[_Call] = field(factory=deque, init=False)
    _told: bool = field(default=False, init=False)

    def give(self, call: _Call) -> None:
        """In a thread: the call is made."""
        self._done.append(call)
        if self._told:
            return
        self._told = True
        try:
            self.loop.call_soon_threadsafe(self._settle)
        except RuntimeError:
            if not self.loop.is_closed():  # else nobody is left to tell
                raise

    def _settle(self) -> None:
        self._told = False  # first: what comes from here on is told anew
        while self._done:
            self._done.popleft().settle()


@define(eq=False)
class _Call:
    function: Callable[..., Any]
    args: tuple[Any, ...]
    bridge: _LoopBridge
    result: asyncio.Future[Any]
    given_up: bool = False
    thread: _Thread | None = None
    _outcome: Any = field(default=None, init=False)
    _error: Exception | None = field(default=None, init=False)

    def make(self) -> None:
        """In the thread."""
        try:
            self._outcome = self.function(*self.args)
        except Exception as raised:
            self._error = _storable(raised)
        except BaseException as raised:  # of an environment that tries to end the program
            self._error = EnvError(f"the environment raised {type(raised).__name__}")

    def settle(self) -> None:
        """In the loop."""
        if self.result.done():
            return
        if self._error is None:
            self.result.set_result(self._outcome)
        else:
            self.result.set_exception(self._error)


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
class ThreadWorkers:
    """Up to ``most`` threads. One is enough while calls are fast: further ones come only once all
    have been busy for ten milliseconds with calls waiting, and go when there is nothing to do."""

    most: int = MOST_THREADS
    _calls: deque[_Call] = field(factory=deque, init=False, repr=False)
    _threads: set[_Thread] = field(factory=set, init=False)
    _wake: threading.Condition = field(factory=threading.Condition, init=False)
    _bridge: _LoopBridge | None = field(default=None, init=False)

    async def call(self, function: Callable[..., Any], *args: Any) -> Any:
        """What the function gives, or raises. A call that is cancelled is given up: if it has
        begun, its thread no longer counts, and ends with it."""
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
            self._give_up(call)
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
        """Another thread, if calls wait and no thread has come to its next one for a while."""
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
            call.bridge.give(call)

    def _next(self, thread: _Thread) -> _Call | None:
        """The next call of a thread; None where it is to end."""
        with self._wake:
            while not thread.left:
                if self._calls:
                    call = self._calls.popleft()
                    if not call.given_up:
                        call.thread, thread.since = thread, time.monotonic()
                        return call
                elif not self._wake.wait(_IDLE) and not self._calls:
                    self._threads.discard(thread)
                    return None
        return None

    def _give_up(self, call: _Call) -> None:
        with self._wake:
            call.given_up, thread = True, call.thread
            if thread is None:
                return
            thread.left = True
            self._threads.discard(thread)
            if self._calls and not self._threads:
                self._start()
