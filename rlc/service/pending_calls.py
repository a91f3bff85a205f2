"""Calls outside of the service after which a program will make another request.

The embedded engine answers requests in waves, and a wave should hold all that the program can
request before it needs an answer. So code that plays environments says when it waits for one. An
environment may take for ever, so a wave waits for it about a second; what is ``ours``, and surely
ends, it waits for as long as it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from attrs import define


@define
class PendingCalls:
    """The calls that are pending in an event loop, and how often that has changed."""

    ours: int = 0
    environments: int = 0
    changes: int = 0

    @property
    def total(self) -> int:
        return self.ours + self.environments

    def add(self, ours: bool, change: int) -> None:
        if ours:
            self.ours += change
        else:
            self.environments += change
        self.changes += 1


_CALLS: WeakKeyDictionary[asyncio.AbstractEventLoop, PendingCalls] = WeakKeyDictionary()


def calls_of(loop: asyncio.AbstractEventLoop) -> PendingCalls:
    """Return the record of a loop's pending calls, which changes with them."""
    return _CALLS.setdefault(loop, PendingCalls())


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
    calls, call = calls_of(asyncio.get_running_loop()), _Call(ours)
    calls.add(ours, 1)
    token = _AROUND.set(call)
    try:
        yield
    finally:
        _AROUND.reset(token)
        call.over = True
        if not call.asking:
            calls.add(ours, -1)


@contextmanager
def asking() -> Iterator[None]:
    """Around a request to the service from within such a call, which waits for the answer: the
    service must not wait for the call."""
    calls, call = calls_of(asyncio.get_running_loop()), _AROUND.get()
    if call is None or call.over:
        yield
        return
    call.asking += 1
    if call.asking == 1:
        calls.add(call.ours, -1)
    try:
        yield
    finally:
        call.asking -= 1
        if not call.asking and not call.over:
            calls.add(call.ours, 1)
