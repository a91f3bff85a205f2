"""Diagnostics for people, and for programs: JSON, SARIF 2.1.0, and the annotations of GitHub's
workflows. No I/O, no colour library."""

from __future__ import annotations

import json
import os
import unicodedata
from collections.abc import Iterable, Sequence

from rlc.lang.codes import code_titles
from rlc.lang.diagnostics import Diagnostic, Fix, Severity, in_order
from rlc.lang.secrets import masked_line
from rlc.lang.source import Source, Span, printable
from rlc.records import frozen

TAB = 4
WIDTH = 100  # columns of an excerpt; longer lines are cut around the mark

_COLORS = {Severity.ERROR: "31", Severity.WARNING: "33"}
_FRAME, _BOLD, _HELP = "34", "1", "36"


def render_human(diagnostics: Iterable[Diagnostic], color: bool) -> str:
    """Return each finding with its excerpt, then a line that counts them; "" without findings."""
    ordered = in_order(diagnostics)
    if not ordered:
        return ""
    paint = Paint(color)
    hidden = [item.span for item in ordered if item.hides and item.span]
    found = (_finding(item, paint, hidden) for item in ordered)
    return "\n".join([*found, summary(ordered)]) + "\n"


def summary(diagnostics: Iterable[Diagnostic]) -> str:
    """Return the number of findings, ``2 errors, 1 warning``."""
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
    """Return the places and marked lines of a finding, without message and help, and without the
    secrets that the findings ``among`` which it is hide."""
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
    """Return the marked lines in order, each followed by its marks, the hidden spans masked."""
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
    """Return the marks under a span, to the end of its first line."""
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
    """Return the part of a line around the character ``focus``."""
    first, last = 0, len(line)
    if last > WIDTH:
        first = min(max(0, focus - WIDTH // 2), last - WIDTH)
        last = first + WIDTH
    text = "…" if first else ""
    columns = []
    width = len(text)
    for char in line[first:last]:
        columns.append(width)
        shown, columns_of_char = _shown(char, width)
        text += shown
        width += columns_of_char
    return _View(text + ("…" if last < len(line) else ""), [*columns, width], first)


def _shown(char: str, column: int) -> tuple[str, int]:
    """Return a character as it is shown in a column, and its width."""
    if char == "\t":
        spaces = TAB - column % TAB
        return " " * spaces, spaces
    if unicodedata.combining(char):
        return char, 0
    if not char.isprintable():
        return "\N{REPLACEMENT CHARACTER}", 1  # a control character must not reach the terminal
    return char, 2 if unicodedata.east_asian_width(char) in "WF" else 1


_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Return a JSON array with one object for each finding; places are 1-based, ends just past."""
    return json.dumps(finding_dicts(diagnostics), indent=2)


def finding_dicts(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Return the findings in order, as :func:`render_json` writes them."""
    return [
        {
            "code": item.code,
            "severity": item.severity.value,
            "message": item.message,
            "file": item.file_name,
            **_place(item.span),
            "help": item.help,
            "labels": [
                {"text": label.text, "file": label.span.source.name, **_place(label.span)}
                for label in item.labels
            ],
            "fix": item.fix and _fix(item.fix),
        }
        for item in in_order(diagnostics)
    ]


def _place(span: Span | None) -> dict[str, int | None]:
    names = "line", "column", "end_line", "end_column"
    return dict(zip(names, span.corners, strict=True)) if span else dict.fromkeys(names)


def _fix(fix: Fix) -> dict[str, object]:
    edits = [
        {"file": span.source.name, **_place(span), "replacement": text} for span, text in fix.edits
    ]
    return {"title": fix.title, "safe": fix.safe, "edits": edits}


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """Return a workflow command for each finding, which GitHub shows beside its line."""
    return "".join(f"{_command(item)}\n" for item in in_order(diagnostics))


def _command(item: Diagnostic) -> str:
    """Return ``::error file=…,line=…::message``; columns only within one line, as GitHub wants."""
    properties: dict[str, object] = {"file": item.file_name}
    if item.span:
        line, column, end_line, end_column = item.span.corners
        properties |= {"line": line, "endLine": end_line}
        if end_line == line:
            properties |= {"col": column, "endColumn": end_column}
    properties["title"] = item.code
    escaped = {
        name: _data(str(value)).replace(":", "%3A").replace(",", "%2C")
        for name, value in properties.items()
    }
    listed = ",".join(f"{name}={value}" for name, value in escaped.items())
    text = item.message if item.help is None else f"{item.message}\nhelp: {item.help}"
    return f"::{item.severity.value} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def render_sarif(diagnostics: Iterable[Diagnostic], version: str) -> str:
    """Return a SARIF log with one run of rlc ``version``, for code scanning and editors."""
    ordered = in_order(diagnostics)
    codes = sorted({item.code for item in ordered})
    rules = [
        {
            "id": code,
            "shortDescription": {"text": code_titles()[code]},
            "help": {"text": f"`rlc explain {code}` says what it means, with examples"},
        }
        for code in codes
    ]
    run = {
        "tool": {"driver": {"name": "rlc", "version": version, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, codes) for item in ordered],
    }
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2)


def _result(item: Diagnostic, codes: list[str]) -> dict[str, object]:
    text = item.message if item.help is None else f"{item.message} ({item.help})"
    result: dict[str, object] = {
        "ruleId": item.code,
        "ruleIndex": codes.index(item.code),
        "level": item.severity.value,
        "message": {"text": text},
        "locations": [_location(item.file_name, item.span)],
    }
    if item.labels:
        result["relatedLocations"] = [
            {
                "id": number,
                "message": {"text": label.text},
                **_location(label.span.source.name, label.span),
            }
            for number, label in enumerate(item.labels, 1)
        ]
    if item.fix:
        result["fixes"] = [_sarif_fix(item.fix)]
    return result


def _location(file: str, span: Span | None) -> dict[str, object]:
    region = {"region": _region(span)} if span else {}
    return {"physicalLocation": {"artifactLocation": _artifact(file), **region}}


def _artifact(file: str) -> dict[str, str]:
    """Return a URI reference: a relative path, or `file:` and an absolute one."""
    from urllib.parse import quote  # slow to import

    path = quote(os.path.normpath(file).replace(os.sep, "/"))
    return {"uri": f"file://{path}" if os.path.isabs(file) else path}


def _region(span: Span) -> dict[str, int]:
    names = "startLine", "startColumn", "endLine", "endColumn"
    return dict(zip(names, span.corners, strict=True))


def _sarif_fix(fix: Fix) -> dict[str, object]:
    changes: dict[str, list[dict[str, object]]] = {}
    for span, text in fix.edits:
        replacement = {"deletedRegion": _region(span), "insertedContent": {"text": text}}
        changes.setdefault(span.source.name, []).append(replacement)
    return {
        "description": {"text": fix.title},
        "artifactChanges": [
            {"artifactLocation": _artifact(file), "replacements": replacements}
            for file, replacements in changes.items()
        ],
    }
