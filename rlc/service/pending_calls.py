"""Calls outside of the service after which a program will make another request.

The embedded engine answers requests in waves, and a wave should hold all that the program can
request before it needs an answer. So code that plays environments says when it waits for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from attrs import define

_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, int] = WeakKeyDictionary()


@define(eq=False)
class _Call:
    """A call, and how many requests of its own it waits for; while there are any, it is not
    counted."""

    asking: int = 0
    over: bool = False


_AROUND: ContextVar[_Call | None] = ContextVar("pending_call", default=None)


@contextmanager
def pending_call() -> Iterator[None]:
    """Count a call after which there may be another request to a service."""
    loop, call = asyncio.get_running_loop(), _Call()
    _CALLS[loop] = _CALLS.get(loop, 0) + 1
    token = _AROUND.set(call)
    try:
        yield
    finally:
        _AROUND.reset(token)
        call.over = True
        if not call.asking:
            _CALLS[loop] -= 1


@contextmanager
def asking() -> Iterator[None]:
    """Around a request to the service from within such a call, which waits for the answer: the
    service must not wait for the call."""
    loop, call = asyncio.get_running_loop(), _AROUND.get()
    if call is None or call.over:
        yield
        return
    call.asking += 1
    if call.asking == 1:
        _CALLS[loop] -= 1
    try:
        yield
    finally:
        call.asking -= 1
        if not call.asking and not call.over:
            _CALLS[loop] += 1


def count_pending(loop: asyncio.AbstractEventLoop) -> int:
    """How many such calls are pending in a loop."""
    return _CALLS.get(loop, 0)
