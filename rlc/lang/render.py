"""Diagnostics as a person reads them. No I/O, no colour library."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

from rlc.lang.diagnostics import Diagnostic, Severity, in_order
from rlc.lang.secrets import masked_line
from rlc.lang.source import Source, Span, printable
from rlc.records import frozen

TAB = 4
WIDTH = 100  # columns of an excerpt; longer lines are cut around the mark

_COLORS = {Severity.ERROR: "31", Severity.WARNING: "33"}
_FRAME, _BOLD, _HELP = "34", "1", "36"


def render_human(diagnostics: Iterable[Diagnostic], color: bool) -> str:
    """Each finding with its excerpt, then a line that counts them; empty without findings."""
    ordered = in_order(diagnostics)
    if not ordered:
        return ""
    paint = Paint(color)
    hidden = [item.span for item in ordered if item.hides and item.span]
    found = (_finding(item, paint, hidden) for item in ordered)
    return "\n".join([*found, summary(ordered)]) + "\n"


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """``2 errors, 1 warning``."""
    severities = [item.severity for item in diagnostics]
    counts = [(severities.count(severity), severity.value) for severity in Severity]
    parts = [f"{count} {name}{'s' * (count != 1)}" for count, name in counts if count]
    return ", ".join(parts) or "no findings"


@frozen
class Paint:
    """Text in the styles of a terminal, by their numbers; as it is if not ``on``."""

    on: bool = False

    def __call__(self, text: str, *styles: str) -> str:
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m" if self.on and text else text

    def title(self, text: str) -> str:
        return self(text, _BOLD)

    def dim(self, text: str) -> str:
        return self(text, "2")


def _finding(item: Diagnostic, paint: Paint, hidden: Sequence[Span]) -> str:
    title = paint(f"{item.severity.value}[{item.code}]", _COLORS[item.severity], _BOLD)
    lines = [f"{title}{paint(f': {printable(item.message)}', _BOLD)}"]
    lines += _places(item, paint, hidden)
    if item.help:
        gutter = " " * _gutter(item)
        lines.append(f"{gutter} {paint('= help:', _HELP, _BOLD)} {printable(item.help)}")
    return "\n".join(lines) + "\n"


def excerpt(item: Diagnostic, among: Iterable[Diagnostic], color: bool) -> str:
    """Return where a finding is: the places and the marked lines, without message and help. Secrets
    that other findings, ``among`` which it is, hide are not shown."""
    hidden = [other.span for other in among if other.hides and other.span]
    return "\n".join(_places(item, Paint(color), hidden)) + "\n"


def _gutter(item: Diagnostic) -> int:
    spans = [item.span, *(label.span for label in item.labels)]
    return max((len(str(span.line)) for span in spans if span), default=1)


def _places(item: Diagnostic, paint: Paint, hidden: Sequence[Span]) -> list[str]:
    marks = [_Mark(item.span, "", _COLORS[item.severity], "^")] if item.span else []
    marks += [_Mark(label.span, label.text, _FRAME, "-") for label in item.labels]
    gutter = _gutter(item)
    lines = [] if item.span else [f" {paint('-->', _FRAME, _BOLD)} {item.file_name}"]
    arrow = "-->"
    for source in dict.fromkeys(mark.span.source for mark in marks):
        group = [mark for mark in marks if mark.span.source is source]
        line, column = source.position(group[0].span.start)
        lines.append(f"{' ' * gutter}{paint(arrow, _FRAME, _BOLD)} {source.name}:{line}:{column}")
        lines += _excerpt(source, group, gutter, paint, hidden)
        arrow = ":::"
    return lines


@frozen
class _Mark:
    span: Span
    text: str
    color: str
    char: str


def _excerpt(
    source: Source, marks: Sequence[_Mark], gutter: int, paint: Paint, hidden: Sequence[Span]
) -> list[str]:
    """Return the marked lines in their order, each followed by its marks, without what is hidden."""
    bar = paint(f"{' ' * gutter} |", _FRAME, _BOLD)
    lines = [bar]
    before: int | None = None
    for number in sorted({mark.span.line for mark in marks}):
        if before is not None and number > before + 1:
            lines.append(paint("...", _FRAME, _BOLD))
        here = [mark for mark in marks if mark.span.line == number]
        view = _view(masked_line(source, number, hidden), here[0].span.column - 1)
        shown = f" {view.text}" if view.text else ""
        lines.append(f"{paint(f'{number:>{gutter}} |', _FRAME, _BOLD)}{shown}")
        lines += [f"{bar} {_underline(view, mark, paint)}" for mark in here]
        before = number
    return lines


def _underline(view: _View, mark: _Mark, paint: Paint) -> str:
    """Marks under one span; a span over several lines is marked to the end of its first."""
    span = mark.span
    end_line, end_column = span.end_position
    start = view.column(span.column - 1)
    end = view.column(end_column - 1) if end_line == span.line else view.columns[-1]
    text = mark.char * max(1, end - start)
    label = f" {printable(mark.text)}" if mark.text else ""
    return " " * start + paint(text + label, mark.color, _BOLD)


@frozen
class _View:
    """A line as shown: ``columns[i]`` is where its i-th shown character starts."""

    text: str
    columns: list[int]
    first: int  # index in the line of the first shown character

    def column(self, index: int) -> int:
        return self.columns[min(max(index - self.first, 0), len(self.columns) - 1)]


def _view(line: str, focus: int) -> _View:
    """Return the part of a line around the character ``focus``, with tabs and wide characters laid out."""
    first, last = 0, len(line)
    if last > WIDTH:
        first = min(max(0, focus - WIDTH // 2), last - WIDTH)
        last = first + WIDTH
    text = "…" if first else ""
    columns = []
    width = len(text)
    for char in line[first:last]:
        columns.append(width)
        shown = _show(char, width)
        text += shown
        width += _width(char) if shown == char else len(shown)
    return _View(text + ("…" if last < len(line) else ""), [*columns, width], first)


def _show(char: str, column: int) -> str:
    if char == "\t":
        return " " * (TAB - column % TAB)
    if char.isprintable() or unicodedata.combining(char):
        return char
    return "\N{REPLACEMENT CHARACTER}"  # a control character must not reach the terminal


def _width(char: str) -> int:
    if char.isascii():
        return 1
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
