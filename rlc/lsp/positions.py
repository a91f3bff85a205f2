"""Places in a text as the protocol counts them: lines, and UTF-16 units or what was agreed on."""

from __future__ import annotations

from lsprotocol import types

from rlc.lang import Source, Span

UTF16 = "utf-16"
_BYTES = {"utf-8": ("utf-8", 1), UTF16: ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


class Positions:
    """Converts between offsets in characters and positions, in units of an ``encoding``."""

    def __init__(self, source: Source, encoding: str = UTF16) -> None:
        self.source = source
        self._codec, self._size = _BYTES[encoding]

    def at(self, offset: int) -> types.Position:
        """Return the position of an offset."""
        line, column = self.source.position(offset)
        before = self.source.line(line)[: column - 1]
        units = column - 1 if before.isascii() else len(before.encode(self._codec)) // self._size
        return types.Position(line - 1, units)

    def offset(self, position: types.Position) -> int:
        """Return the offset of a position, of one behind the end of a line or text that end. One
        within a character is before it."""
        starts, number = self.source.line_starts, int(position.line)
        if number >= len(starts):
            return len(self.source.text)
        line, units = self.source.line(number + 1), int(position.character)
        if line.isascii():
            return starts[number] + min(units, len(line))
        before = line.encode(self._codec)[: units * self._size]
        return starts[number] + len(before.decode(self._codec, "ignore"))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.at(start), self.at(end))

    def of(self, span: Span) -> types.Range:
        """Return the range of a span of this source."""
        return self.range(span.start, span.end)
