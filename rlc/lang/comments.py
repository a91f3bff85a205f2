"""Comments behind code, one below the other where lines follow each other."""

from __future__ import annotations

from itertools import groupby

from rlc.lang.source import Source
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables

GAP = "  "  # at least, between code and comment
MAX_PADDING = 20  # columns; a comment further from its code no longer reads as its own


def align_comments(text: str, width: int) -> str:
    """``text`` with the comments of neighbouring lines of one indent in one column.

    A group stays as it is where it would outgrow ``width``, or a comment stand far from its code.
    Aligning twice changes nothing: the code before the comments, which decides, does not change.
    """
    lines, source = text.split("\n"), Source("", text)
    commented: list[tuple[int, str, str]] = []  # index of the line, its code, its comment
    for token in lex(source, load_tables()).comments:
        number, column = source.position(token.start)
        if code := lines[number - 1][: column - 1].rstrip():
            commented.append((number - 1, code, text[token.start : token.end]))

    def block(item: tuple[int, tuple[int, str, str]]) -> tuple[int, int]:
        """The same for lines of one indent that follow each other."""
        place, (index, code, _) = item
        return index - place, len(code) - len(code.lstrip())

    for _, items in groupby(enumerate(commented), block):
        group = [line for _, line in items]
        widths = [len(code) for _, code, _ in group]
        column = max(widths) + len(GAP)
        fits = all(column + len(comment) <= width for _, _, comment in group)
        if fits and max(widths) - min(widths) <= MAX_PADDING:
            for index, code, comment in group:
                lines[index] = f"{code:<{column}}{comment}"
    return "\n".join(lines)
