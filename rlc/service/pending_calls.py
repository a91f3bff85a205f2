"""What a program waits for beside its service: calls after which it will ask for more.

The embedded engine answers requests in waves, and a wave is to hold all that the program can ask
for before it needs an answer. Code that plays environments therefore says when it waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


@contextmanager
def pending_call() -> Iterator[None]:
    """Around a call after which there may be another request to a service."""
    loop = asyncio.get_running_loop()
    _CALLS[loop] = _CALLS.get(loop, 0) + 1
    try:
        yield
    finally:
        _CALLS[loop] -= 1


def count_pending(loop: asyncio.AbstractEventLoop) -> int:
    """How many such calls a loop waits for."""
    return _CALLS.get(loop, 0)
