"""Structured concurrency: siblings end together, and the first cause is what surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from rlc.service.pending_calls import pending_call

P = ParamSpec("P")
T = TypeVar("T")

# Not the loop's own executor: what environments leave hanging in that must not hold up a run.
_ASIDE = ThreadPoolExecutor(2, thread_name_prefix="rlc-aside")


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """What a function of a whole batch gives, without holding up the event loop meanwhile. It
    changes nothing that others read. More requests follow, so the service is told to wait."""
    with pending_call():
        call = _ASIDE.submit(function, *args, **kwargs)
        return await asyncio.wrap_future(call)


async def all_of(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Run all side by side; the first failure cancels the others and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        raise first_cause(failures) from None
    return [task.result() for task in tasks]


def first_cause(error: BaseException) -> BaseException:
    """The first leaf of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
