"""Digests of the files that a plan names, of data and of Python code, to know them again."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress

from rlc.plan import DataFile, is_saved_set, located


def data_files(paths: Iterable[str], recipe: str) -> tuple[DataFile, ...]:
    """Return the digests of files of a plan, each once, without those that are missing."""
    found = {}
    for path in sorted(set(paths)):
        place = located(path, recipe)
        if os.path.isfile(place):
            found[path] = _data_file(path, place)
    return tuple(found.values())


def changed_files(files: Iterable[DataFile], recipe: str) -> Iterator[str]:
    """Yield a sentence for each file that has changed since the plan was made."""
    for file in files:
        place = located(file.path, recipe)
        if not os.path.isfile(place):
            yield f"{place} is gone"
        elif (now := _data_file(file.path, place)) != file:
            yield f"{place} has changed: it was {_said(file)}, and is {_said(now)}"


def _data_file(path: str, place: str) -> DataFile:
    """Return the digest of a file, or of all that it stands for; missing ones are left out."""
    parts, digest, size = [place], hashlib.blake2b(digest_size=32), 0
    if is_saved_set(place):
        from rlc.data.errors import DataError
        from rlc.data.rows import parts_of

        with suppress(DataError):  # which those that read it report
            parts = parts_of(place)
    for part in filter(os.path.isfile, parts):
        with open(part, "rb") as opened:
            while block := opened.read(2**20):
                digest.update(block)
                size += len(block)
    return DataFile(path, size, digest.hexdigest())


def _said(file: DataFile) -> str:
    return f"{file.size:,} bytes ({file.digest[:12]})"
