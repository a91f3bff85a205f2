"""An answer made of another, once that is here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, Generic, TypeVar

from attrs import frozen

T = TypeVar("T")
R = TypeVar("R")


@frozen(eq=False)
class MappedAwaitable(Generic[T, R]):
    """What ``make`` makes of the result of ``work``, which is under way already. Unlike a coroutine
    it may be left unawaited, by a run or a server that ends."""

    work: Awaitable[T]
    make: Callable[[T], R]

    def __await__(self) -> Generator[Any, None, R]:
        return self.make((yield from self.work.__await__()))
