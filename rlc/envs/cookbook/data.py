"""The groups of a cookbook data set, by number."""

from __future__ import annotations

from typing import Any

from rlc.chat import EnvError
from rlc.data import explained

_KEPT = 4  # batches of which some groups have not been used yet


class Batches:
    """Task *n* is the *n*-th group of the data set's batches; after the last, the next epoch."""

    def __init__(self, target: str, data: Any) -> None:
        """Batches have the size of the first; the last may be smaller. Raise EnvError for a data
        set that has no groups or fails."""
        self._target = target
        self._data = data
        self._left: dict[tuple[int, int], dict[int, Any]] = {}
        try:
            batches = len(data)
        except Exception as error:
            raise EnvError(
                f"the data set of `{target}` has no length: {explained(error)}"
            ) from error
        if batches < 1:
            raise EnvError(f"the data set of `{target}` has no batches")
        self._size = len(self._batch(0))
        last = len(self._batch(batches - 1))
        self._batches = batches
        if not 0 < last <= self._size:
            raise EnvError(
                f"the first batch of `{target}` has {self._size} groups, and the last has {last}"
            )
        self.count = self._size * (batches - 1) + last

    def group(self, number: int) -> Any:
        """A fresh builder of a group: one that was played may be used up."""
        epoch, index = divmod(number, self.count)
        batch, offset = divmod(index, self._size)
        left = self._left.pop((epoch, batch), {})
        if offset not in left:
            left = dict(enumerate(self._batch(batch)))
        if offset not in left:
            raise EnvError(
                f"batch {batch} of `{self._target}` has {len(left)} groups where {self._size} "
                "were counted: `get_batch` must give the same for the same index"
            )
        builder = left.pop(offset)
        if left:
            self._left[epoch, batch] = left
        while len(self._left) > _KEPT:
            del self._left[next(iter(self._left))]
        return builder

    def _batch(self, index: int) -> list[Any]:
        try:
            return list(self._data.get_batch(index))
        except Exception as error:
            raise EnvError(
                f"`get_batch({index})` of `{self._target}` failed: {explained(error)}"
            ) from error
