"""What requests of a service may cost together, each set aside at its most before it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from attrs import define, field


@define(eq=False)
class SpendingLimit:
    """At most ``usd``, or any amount if that is None. ``spent`` returns USD so far."""

    usd: float | None
    spent: Callable[[], float]
    _pending: list[float] = field(factory=list, init=False)

    def left(self) -> float:
        """Return USD that are not spent yet, requests in flight aside."""
        return float("inf") if self.usd is None else self.usd - self.spent()

    def reserve(self, dollars: float) -> AbstractContextManager[None] | None:
        """Return a context in which so much is set aside; None if it is not left."""
        has_room = self.left() >= dollars + sum(self._pending)
        return self._reserved(dollars) if has_room else None

    @contextmanager
    def _reserved(self, dollars: float) -> Iterator[None]:
        self._pending.append(dollars)
        try:
            yield
        finally:
            self._pending.remove(dollars)
