"""Calls outside of the service after which a program will make another request.

The embedded engine answers requests in waves, and a wave should hold all that the program can
request before it needs an answer. So code that plays environments says when it waits for one. An
environment may take for ever, so a wave waits for it about a second; what is ``ours``, and surely
ends, it waits for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from attrs import define

_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, Counter[bool]] = WeakKeyDictionary()


@define(eq=False)
class _Call:
    """A call, and how many requests of its own it waits for; while there are any, it is not
    counted."""

    ours: bool
    asking: int = 0
    over: bool = False


_AROUND: ContextVar[_Call | None] = ContextVar("pending_call", default=None)


@contextmanager
def pending_call(ours: bool = False) -> Iterator[None]:
    """Count a call after which there may be another request to a service."""
    loop, call = asyncio.get_running_loop(), _Call(ours)
    _CALLS.setdefault(loop, Counter())[ours] += 1
    token = _AROUND.set(call)
    try:
        yield
    finally:
        _AROUND.reset(token)
        call.over = True
        if not call.asking:
            _CALLS[loop][ours] -= 1


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
        _CALLS[loop][call.ours] -= 1
    try:
        yield
    finally:
        call.asking -= 1
        if not call.asking and not call.over:
            _CALLS[loop][call.ours] += 1


def count_pending(loop: asyncio.AbstractEventLoop, ours: bool | None = None) -> int:
    """How many such calls are pending in a loop: ours, those of environments, or by default all."""
    calls = _CALLS.get(loop, Counter())
    return calls.total() if ours is None else calls[ours]
