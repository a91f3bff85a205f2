"""Comments behind code, one below the other where lines follow each other."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rlc.lang.source import Source
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables

GAP = "  "  # at least, between code and comment
MAX_PADDING = 20  # columns; a comment further from its code no longer reads as its own


@frozen
class _Line:
    """A line with a comment behind its code; ``number`` counts from 0."""

    number: int
    code: str
    comment: str

    @property
    def indent(self) -> int:
        return len(self.code) - len(self.code.lstrip())


def align_comments(text: str, width: int) -> str:
    """``text`` with the comments of neighbouring lines of one indent in one column.

    A group stays as it is where it would outgrow ``width``, or a comment stand far from its code.
    Aligning twice changes nothing: the code before the comments, which decides, does not change.
    """
    lines = text.split("\n")
    for group in _groups(text, lines):
        widths = [len(line.code) for line in group]
        column = max(widths) + len(GAP)
        fits = all(column + len(line.comment) <= width for line in group)
        if fits and max(widths) - min(widths) <= MAX_PADDING:
            for line in group:
                lines[line.number] = f"{line.code:<{column}}{line.comment}"
    return "\n".join(lines)


def _groups(text: str, lines: list[str]) -> Iterator[list[_Line]]:
    """The commented lines of one indent that follow each other."""
    source = Source("", text)
    group: list[_Line] = []
    for token in lex(source, load_tables()).comments:
        number, column = source.position(token.start)
        before = lines[number - 1][: column - 1].rstrip()
        if not before:
            continue
        line = _Line(number - 1, before, text[token.start : token.end])
        if group and (line.number != group[-1].number + 1 or line.indent != group[-1].indent):
            yield group
            group = []
        group.append(line)
    if group:
        yield group
