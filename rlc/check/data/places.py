"""Places in files that a recipe names, as a finding shows them."""

from __future__ import annotations

from itertools import islice

from rlc.data import FilePlace
from rlc.lang import Label, Source, Span

LONGEST = 100_000  # characters of a line that is shown


def labels(place: FilePlace | None, shown: str, text: str = "") -> list[Label]:
    """The label at a place of a file, which is called ``shown``; none if it has no lines, or cannot
    be read."""
    if place is None or place.line is None:
        return []
    start = place.line - 1
    try:
        with open(place.path, encoding="utf-8-sig", errors="replace") as file:
            line = next(islice(file, start, None), "").rstrip("\r\n")[:LONGEST]
    except OSError:
        return []
    at = start + min((place.column or 1) - 1, len(line))
    end = start + len(line) if place.column is None else at + 1
    # A source of this line alone: the empty ones before give it its number.
    return [Label(Span(Source(shown, "\n" * start + line), at, max(end, at + 1)), text)]
