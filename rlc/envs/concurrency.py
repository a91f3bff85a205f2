"""Structured concurrency: the first failure ends what runs beside it, and is what is raised."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def all_of(coroutines: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines concurrently; the first failure cancels the others and is raised itself."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        first = first_cause(failures)
        raise first from first.__cause__  # not the group
    return [task.result() for task in tasks]


def first_cause(error: BaseException) -> BaseException:
    """Return the first leaf of nested exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
