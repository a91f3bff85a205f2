"""A lock for the global random generators."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field


@define(eq=False)
class GlobalRngLock:
    """A lock that can be taken from its holder, whose thread may hang while the others go on."""

    _holder: object | None = field(default=None, init=False)
    _changed: threading.Condition = field(factory=threading.Condition, init=False)

    @contextmanager
    def held_by(self, holder: object) -> Iterator[None]:
        """Wait until nobody else holds the lock, and hold it."""
        with self._changed:
            self._changed.wait_for(lambda: self._holder is None)
            self._holder = holder
        try:
            yield
        finally:
            self.release(holder)

    def release(self, holder: object) -> None:
        """Free the lock if ``holder`` holds it."""
        with self._changed:
            if self._holder is holder:
                self._holder = None
                self._changed.notify()


GLOBAL_RNG = GlobalRngLock()
