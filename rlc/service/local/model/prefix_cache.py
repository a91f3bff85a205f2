"""Keys and values of sequences already computed, found again by their longest prefix.

The next turn of an episode extends the tokens of the last, so only the difference has to be
computed. An entry belongs to one snapshot of the weights. Memory is bounded: the entries
used longest ago go first.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from weakref import WeakKeyDictionary

from attrs import define, field, frozen
from torch import Tensor

from rlc.service.local.model.base_model import Snapshot
from rlc.service.local.model.packing import IntArray, common_prefix, sort_key


@frozen(eq=False)
class Entry:
    """A sequence and its keys and values."""

    tokens: IntArray
    cut: Tensor  # from `KVCache.cut`


@define(eq=False)
class _Shelf:
    """The entries of one snapshot; keys in lexicographic order."""

    keys: list[bytes] = field(factory=list)
    entries: dict[bytes, Entry] = field(factory=dict)


@define(eq=False)
class PrefixCache:
    """At most ``budget`` bytes of entries."""

    budget: int
    used: int = field(default=0, init=False)
    _shelves: WeakKeyDictionary[Snapshot, _Shelf] = field(factory=WeakKeyDictionary, init=False)
    _age: OrderedDict[tuple[int, bytes], _Shelf] = field(factory=OrderedDict, init=False)

    def longest(self, snapshot: Snapshot, tokens: IntArray) -> tuple[Entry | None, int]:
        """Return the entry that shares the most leading tokens with ``tokens``, and how many."""
        shelf = self._shelves.get(snapshot)
        if shelf is None:
            return None, 0
        at = bisect_left(shelf.keys, sort_key(tokens))
        best: tuple[Entry | None, int] = (None, 0)
        for key in shelf.keys[max(at - 1, 0) : at + 1]:
            shared = common_prefix(shelf.entries[key].tokens, tokens)
            if shared > best[1]:
                best = (shelf.entries[key], shared)
        if best[0] is not None:
            self._age.move_to_end((id(shelf), sort_key(best[0].tokens)))
        return best

    def put(self, snapshot: Snapshot, tokens: IntArray, cut: Tensor) -> None:
        """Keep a sequence; an entry that it extends is dropped, for it serves for both."""
        key = sort_key(tokens)
        if snapshot not in self._shelves:
            self._shelves[snapshot] = _Shelf()
            alive = {id(shelf) for shelf in self._shelves.values()}
            for (owner, old), gone in list(self._age.items()):
                if owner not in alive:
                    self._drop(gone, old)
        shelf = self._shelves[snapshot]
        at = bisect_left(shelf.keys, key)
        if at < len(shelf.keys) and shelf.keys[at].startswith(key):
            return
        if at and key.startswith(shelf.keys[at - 1]):
            self._drop(shelf, shelf.keys[at - 1])
        shelf.entries[key] = Entry(tokens, cut)
        insort(shelf.keys, key)
        self._age[id(shelf), key] = shelf
        self.used += cut.nbytes
        while self.used > self.budget:
            (_, oldest), holder = next(iter(self._age.items()))
            self._drop(holder, oldest)

    def _drop(self, shelf: _Shelf, key: bytes) -> None:
        self.used -= shelf.entries.pop(key).cut.nbytes
        del shelf.keys[bisect_left(shelf.keys, key)]
        del self._age[id(shelf), key]
