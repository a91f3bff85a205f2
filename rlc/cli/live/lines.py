"""Lines that fit: text cut and wrapped by its columns; and curves of block characters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, zip_longest
from statistics import fmean

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


def flowed(pieces: Iterable[str], width: int, most: int) -> list[str]:
    """Return the pieces on at most ``most`` lines, with a count of those that are left out."""
    lines, left = list[str](), [piece for piece in pieces if piece]
    while left and len(lines) < most:
        for count in range(len(left), 0, -1):
            line, more = "   ".join(left[:count]), len(left) - count
            if more and len(lines) + 1 == most:
                line += f"   +{more}"
            if cell_len(line) <= width:
                break
        lines.append(cut(line, width))
        left = left[count:]
    return lines


def fitted(pieces: Iterable[str], width: int) -> str:
    """Join as many pieces as have room on one line, with a count of those that are left out."""
    return "".join(flowed(pieces, width, 1))


def row(label: str, text: str | Text, width: int, labels: int) -> Text:
    """Return a line: a dim label on the right of its ``labels`` columns, then a text."""
    line = Text(f"{cut(label, labels):>{labels}}  ", style="dim")
    line = Text.assemble(line, text)
    line.truncate(width, overflow="ellipsis")
    return line


def beside(columns: Sequence[Sequence[Text]], width: int) -> Iterator[Text]:
    """Yield the lines of several columns of ``width`` next to each other."""
    for parts in zip_longest(*columns, fillvalue=Text()):
        line = Text()
        for part in map(Text.copy, parts):
            part.truncate(width, overflow="ellipsis", pad=True)
            line.append_text(part).append("   ")
        line.rstrip()
        yield line


def rule(title: str, width: int) -> Text:
    title = cut(title, width - 6)
    line = Text("── ", style="dim").append(title, style="bold not dim")
    return line.append(" " + "─" * max(0, width - 4 - cell_len(title)))


_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 48) -> str:
    return "".join(chart(values, width, 1))


def chart(values: Sequence[float], width: int, height: int) -> list[str]:
    """Draw a curve on several lines, the highest first; average a series longer than ``width``."""
    count = min(width, len(values))
    if not count:
        return []
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    points = [fmean(values[a:b]) for a, b in pairwise(cuts)]
    low, high = min(points), max(points)
    varies = min(values) < max(values)  # means of equal numbers may differ in their last bits
    scale = (height * len(_BARS) - 1) / (high - low) if varies and high > low else 0.0
    eighths = [1 + round((point - low) * scale) for point in points]
    lines = []
    for row in reversed(range(height)):
        filled = (min(max(eighth - row * len(_BARS), 0), len(_BARS)) for eighth in eighths)
        lines.append("".join(" " if not part else _BARS[part - 1] for part in filled))
    return lines


def stretched(values: Sequence[float], width: int) -> list[float]:
    """Return a short series with each value as often as there is room for all."""
    times = max(1, width // max(1, len(values)))
    return [value for value in values for _ in range(times)]
