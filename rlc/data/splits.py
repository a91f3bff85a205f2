"""Parts of data: a split by its name, or an exact share of one, as a plan says which."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from hashlib import blake2b
from typing import Any

from rlc.data.errors import DataError
from rlc.data.rows import DataRow
from rlc.plan import FIELD, Split, base_split
from rlc.records import field, frozen

TRAIN = "train"  # of rows that do not say it
_DIGEST_BYTES = 8


def _exact(share: float) -> Fraction:
    # 33.3 % means 333/1000, regardless of its nearest float.
    return Fraction(share).limit_denominator(10**9)


@frozen
class Part:
    """The first or the last ``share`` of a split, by the order of its rows, or by a ``hash`` of
    their questions: equal ones stay together, and no row that is added or moved moves others."""

    part: str  # "first" or "last"
    share: Fraction = field(converter=_exact)
    by: str  # "order" or "hash"
    of: str

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        one = Fraction(1)
        return (Fraction(0), self.share) if self.part == "first" else (one - self.share, one)

    def count(self, rows: int) -> int | None:
        """Return the number of a split's rows in the part; None if their content decides."""
        low, high = self.bounds
        return cut_at(rows, high) - cut_at(rows, low) if self.by == "order" else None

    def rows(self, rows: Sequence[DataRow], question: str) -> Sequence[DataRow]:
        """Return the rows of a split in the part; ``question`` is the field that is hashed."""
        if self.by == "hash":
            return [*self.hashed(rows, question)]
        low, high = self.bounds
        return rows[cut_at(len(rows), low) : cut_at(len(rows), high)]

    def hashed(self, rows: Iterable[DataRow], question: str) -> Iterator[DataRow]:
        """Yield the rows of a split that are in the part by their content."""
        low, high = self.bounds
        for row in rows:
            if low <= position(row.fields.get(question, row.fields)) < high:
                yield row


def part_of(split: Split) -> Part | None:
    return None if isinstance(split, str) else Part(**split)


def said(split: Split) -> str:
    if isinstance(split, str):
        return f"`{split}`"
    return f"`{split['part']}({100 * split['share']:.6g}%)` of `{split['of']}`"


def split_of(row: Mapping[str, Any]) -> str:
    return str(row.get(FIELD) or TRAIN)


def rows_of_split(
    data: str, rows: Iterable[DataRow], split: Split, question: str
) -> Sequence[DataRow]:
    """Return the rows of a file that are in a split. Raise DataError if there are none."""
    by_name: dict[str, list[DataRow]] = {}
    for row in rows:
        by_name.setdefault(split_of(row.fields), []).append(row)
    if base_split(split) not in by_name:
        raise NoSplitError(data, base_split(split), by_name)
    return rows_of_part(data, by_name[base_split(split)], split, question)


def rows_of_part(
    data: str, rows: Sequence[DataRow], split: Split, question: str
) -> Sequence[DataRow]:
    """Return the part of a split's rows. Raise DataError if it is empty."""
    part = part_of(split)
    chosen = rows if part is None else part.rows(rows, question)
    if not chosen:
        raise DataError(f"{said(split)} of {data} is empty: there are {len(rows):,} rows in all")
    return chosen


def count_of_split(rows: Iterable[DataRow], split: Split, question: str) -> int:
    """Count what :func:`rows_of_split` would return; 0 for a split that is not there."""
    part = part_of(split)
    there = (row for row in rows if split_of(row.fields) == base_split(split))
    if part is not None and part.by == "hash":
        return sum(1 for _ in part.hashed(there, question))
    count = sum(1 for _ in there)
    return count if part is None else part.count(count) or 0


class NoSplitError(DataError):
    """A split that data does not have; ``there`` are those that it has."""

    def __init__(self, data: str, split: str, there: Iterable[str]) -> None:
        self.there = sorted(there)
        listed = ", ".join(f"`{name}`" for name in self.there)
        super().__init__(f"{data} has no split `{split}`; it has {listed}")


def position(question: Any) -> Fraction:
    """Return the place of a question from 0 to 1, by its content without white space."""
    plain = isinstance(question, str)
    text = question if plain else json.dumps(question, sort_keys=True, default=str)
    digest = blake2b(" ".join(text.split()).encode(), digest_size=_DIGEST_BYTES).digest()
    return Fraction(int.from_bytes(digest, "big"), 256**_DIGEST_BYTES)


def cut_at(count: int, share: Fraction) -> int:
    """Return the row at which a share ends: the nearest, and the later of two."""
    return int(count * share + Fraction(1, 2))
