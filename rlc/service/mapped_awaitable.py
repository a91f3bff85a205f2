"""A function of the result of an awaitable."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from attrs import frozen

T = TypeVar("T")
R = TypeVar("R")


@frozen(eq=False)
class MappedAwaitable(Generic[T, R]):
    """``make`` of the result of ``work``, which is already under way. Unlike a coroutine it may
    remain unawaited, when a run or a server ends."""

    work: Awaitable[T]
    make: Callable[[T], R]

    def __await__(self) -> Generator[Any, None, R]:
        return self.make((yield from self.work.__await__()))
