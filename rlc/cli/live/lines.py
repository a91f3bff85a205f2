"""Lines that fit: text of others made harmless, cut and wrapped by what it takes on a screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from rlc.cli.output import visible


def plain(text: str) -> str:
    """Return a text as one line: line ends become spaces, other control characters are escaped."""
    return visible(" ".join(text.expandtabs(1).split("\n")))


def cut(text: str, width: int) -> str:
    """Return a text in at most ``width`` columns, with ``…`` where some of it is missing."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def wrapped(text: str, width: int) -> list[str]:
    """Break a text into lines of at most ``width`` columns, between words where there are some."""
    lines = []
    for paragraph in visible(text).expandtabs(4).split("\n"):
        line = ""
        for word in paragraph.split(" "):
            longer = f"{line} {word}" if line else word
            if cell_len(longer) <= width:
                line = longer
                continue
            if line:
                lines.append(line)
            *whole, line = _chopped(word, width)
            lines += whole
        lines.append(line)
    return lines


def _chopped(word: str, width: int) -> list[str]:
    parts, part, size = [], "", 0
    for character in word:
        cells = cell_len(character)
        if size + cells > width:
            parts.append(part)
            part, size = "", 0
        part, size = part + character, size + cells
    return [*parts, part]


def flowed(pieces: Iterable[str], width: int, most: int, gap: str = "   ") -> list[str]:
    """Return the pieces on at most so many lines; of what is left out there is a count."""
    lines, left = list[str](), [piece for piece in pieces if piece]
    while left and len(lines) < most:
        counts = range(len(left), 0, -1)
        fits = (
            n for n in counts if cell_len(_joined(left, n, gap, len(lines) + 1 == most)) <= width
        )
        count = next(fits, 1)
        lines.append(cut(_joined(left, count, gap, len(lines) + 1 == most), width))
        left = left[count:]
    return lines


def _joined(pieces: Sequence[str], count: int, gap: str, counted: bool) -> str:
    more = f"{gap}+{len(pieces) - count}" if counted and count < len(pieces) else ""
    return gap.join(pieces[:count]) + more


def fitted(pieces: Iterable[str], width: int) -> str:
    """Join as many pieces as have room on one line; of what is left out there is a count."""
    return "".join(flowed(pieces, width, 1))


def row(label: str, text: str | Text, width: int, labels: int) -> Text:
    """Return a line: a dim label on the right of its ``labels`` columns, then a text."""
    line = Text(f"{cut(label, labels):>{labels}}  ", style="dim")
    line = Text.assemble(line, text)
    line.truncate(width, overflow="ellipsis")
    return line


def beside(columns: Sequence[Sequence[Text]], width: int, gap: int = 3) -> Iterator[Text]:
    """Yield the lines of several columns of ``width`` next to each other."""
    for number in range(max(map(len, columns))):
        line = Text()
        for column in columns:
            part = column[number].copy() if number < len(column) else Text()
            part.truncate(width, overflow="ellipsis", pad=True)
            line.append_text(part)
            line.append(" " * gap)
        line.rstrip()
        yield line


def rule(title: str, width: int) -> Text:
    """Return a line that begins a section."""
    title = cut(title, width - 6)
    line = Text("── ", style="dim").append(title, style="bold not dim")
    return line.append(" " + "─" * max(0, width - 4 - cell_len(title)))
