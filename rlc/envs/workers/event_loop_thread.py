"""An event loop in a thread of its own, for code that is async but may block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from attrs import define, field

_T = TypeVar("_T")

_PATIENCE = 5.0  # seconds that close() waits for code that blocks the loop


@define(eq=False)
class EventLoopThread:
    """Runs coroutines in one loop, which starts with the first of them."""

    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine; blocks until then."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    async def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of a coroutine, which is cancelled with the caller."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(coroutine, self._running())
        )

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
