"""Sequences that share prefixes, laid out as one stream in which each prefix stands once.

In lexicographic order the longest prefix that a sequence shares with any earlier one is the
one it shares with its neighbour, so sorting and one comparison each build the whole prefix
tree. A sequence is then a *path*: for each of its tokens, the place in the stream.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from attrs import frozen

IntArray = npt.NDArray[np.int64]


@frozen(eq=False)
class Pack:
    """``N`` stream tokens; a path for each sequence, in the order the sequences were given."""

    tokens_N: IntArray
    positions_N: IntArray
    owner_N: IntArray  # the sequence that brought the token in
    paths: tuple[IntArray, ...]


def sort_key(tokens: IntArray) -> bytes:
    """Return bytes that sort as the token sequence does, a prefix before its extensions."""
    return tokens.astype(">u4").tobytes()


def common_prefix(a: IntArray, b: IntArray) -> int:
    """Return how many leading tokens two sequences share."""
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    return int(differ.argmax()) if differ.any() else n


def lexicographic(sequences: Sequence[IntArray]) -> list[int]:
    """Return indices of the sequences in lexicographic order; equal ones keep their order."""
    keys = [sort_key(tokens) for tokens in sequences]
    return sorted(range(len(keys)), key=keys.__getitem__)


def pack(sequences: Sequence[IntArray]) -> Pack:
    """Lay out the prefix tree of ``sequences`` (each at least one token)."""
    paths: list[IntArray] = [np.empty(0, dtype=np.int64)] * len(sequences)
    tokens, positions, owners = [], [], []
    size = 0
    previous: int | None = None
    for i in lexicographic(sequences):
        shared = 0 if previous is None else common_prefix(sequences[previous], sequences[i])
        new = len(sequences[i]) - shared
        head = paths[i][:0] if previous is None else paths[previous][:shared]
        paths[i] = np.concatenate([head, np.arange(size, size + new)])
        tokens.append(sequences[i][shared:])
        positions.append(np.arange(shared, shared + new))
        owners.append(np.full(new, i))
        size += new
        previous = i
    return Pack(
        np.concatenate(tokens), np.concatenate(positions), np.concatenate(owners), tuple(paths)
    )


def micro_batches(sequences: Sequence[IntArray], budget: int) -> Iterator[list[int]]:
    """Cut the lexicographic order into runs of at most ``budget`` tokens (at least one each).

    Neighbours share prefixes, so the runs lose little of them; and the runs do not depend on
    the order of ``sequences``.
    """
    run: list[int] = []
    used = 0
    for i in lexicographic(sequences):
        if run and used + len(sequences[i]) > budget:
            yield run
            run, used = [], 0
        run.append(i)
        used += len(sequences[i])
    if run:
        yield run


def length_buckets(lengths: Sequence[int], waste: float = 0.15) -> list[list[int]]:
    """Group indices by length so that padding each group adds at most ``waste`` to it."""
    buckets: list[list[int]] = []
    filled = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        top = lengths[buckets[-1][0]] if buckets else 0
        padded = top * (len(buckets[-1]) + 1) if buckets else 0
        if buckets and padded <= (1 + waste) * (filled + lengths[i]):
            buckets[-1].append(i)
            filled += lengths[i]
        else:
            buckets.append([i])
            filled = lengths[i]
    return buckets
