"""The errors of data, and the places in files that they point to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rlc.errors import Error
from rlc.records import frozen


@frozen
class FilePlace:
    """A place in a file: a row, and a line and a column where those are known, all from 1."""

    path: str
    row: int
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        if self.line is None:
            return f"{self.path}, row {self.row}"
        return ":".join(str(part) for part in (self.path, self.line, self.column) if part)


class DataError(Error):
    """Data, or code, that is unusable: ``what`` is wrong, and its ``place`` in a file, or None."""

    cause = "data"

    def __init__(self, what: str, hint: str | None = None, place: FilePlace | None = None) -> None:
        super().__init__(what if place is None else f"{place}: {what}", hint)
        self.args = (what, hint, place)  # what a copy in another process is made from
        self.what = what
        self.place = place


class PackageMissingError(DataError):
    """A package that is not installed here; it may be where the recipe is run."""


class CodeError(DataError):
    """Code that is missing or cannot be called. ``argument``: the one at fault."""

    def __init__(self, what: str, advice: str | None = None, argument: str | None = None) -> None:
        super().__init__(what if advice is None else f"{what}; {advice}")
        self.args = (what, advice, argument)
        self.what, self.advice, self.argument = what, advice, argument


@contextmanager
def at_place(place: FilePlace) -> Iterator[None]:
    """Add the place to an error that is raised inside, if it has none."""
    try:
        yield
    except DataError as error:
        if error.place is not None:
            raise
        raise DataError(error.what, error.hint, place) from error
