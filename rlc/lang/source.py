"""Source text and the spans that point into it."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from functools import cached_property

from rlc.records import field, frozen


def printable(text: str) -> str:
    """Return the text with escapes for the characters that a terminal does not print."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


@frozen(eq=False)
class Source:
    """One file of recipe text. Compared by identity: two reads are two sources.

    ``name`` is what a diagnostic shows: the path as the user typed it. ``folder`` is where the
    paths in it start, by default the folder of ``name``.
    """

    name: str
    text: str
    folder: str = field()

    @folder.default
    def _folder_of_name(self) -> str:
        return os.path.dirname(self.name)

    @cached_property
    def shown_name(self) -> str:
        """The name as provenance has it, the same on every system."""
        return os.path.normpath(self.name).replace(os.sep, "/")

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line; line 1 is at index 0."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the 1-based line and column (in characters) of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Return the text of a 1-based line, without its line end."""
        start = self.line_starts[number - 1]
        stop = self.line_starts[number] if number < len(self.line_starts) else len(self.text)
        return self.text[start:stop].rstrip("\r\n")


@frozen
class Span:
    """A half-open range of characters ``[start, end)`` of one source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.position(self.start)[1]

    @property
    def end_position(self) -> tuple[int, int]:
        """1-based line and column just past the last character."""
        return self.source.position(self.end)

    @property
    def corners(self) -> tuple[int, int, int, int]:
        """1-based line and column of the start, and of the end."""
        return *self.source.position(self.start), *self.end_position

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        """Return the span from the start of this one to the end of ``other``."""
        return Span(self.source, self.start, other.end)

    def place(self) -> str:
        """Return ``name:line``, as provenance shows it."""
        return f"{self.source.shown_name}:{self.line}"
