"""Calls outside of the service after which a program will make another request.

The embedded engine answers requests in waves, and a wave should hold all that the program can
request before it needs an answer. So code that plays environments says when it waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


@contextmanager
def pending_call() -> Iterator[None]:
    """Count a call after which there may be another request to a service."""
    loop = asyncio.get_running_loop()
    _CALLS[loop] = _CALLS.get(loop, 0) + 1
    try:
        yield
    finally:
        _CALLS[loop] -= 1


def count_pending(loop: asyncio.AbstractEventLoop) -> int:
    """How many such calls are pending in a loop."""
    return _CALLS.get(loop, 0)
