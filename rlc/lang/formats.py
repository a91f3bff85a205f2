"""Diagnostics for programs: JSON, SARIF 2.1.0, and the annotations of GitHub's workflows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from rlc.lang.codes import CODES
from rlc.lang.diagnostics import Diagnostic, Fix, in_order
from rlc.lang.source import Span

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """Return a JSON array with one object for each finding; places are 1-based, ends just past."""
    return json.dumps(finding_dicts(diagnostics), indent=2)


def finding_dicts(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """Return the findings in their order, as `render_json` writes them."""
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
    """One workflow command a line: GitHub shows each beside the line of the pull request."""
    return "".join(f"{_command(item)}\n" for item in in_order(diagnostics))


def _command(item: Diagnostic) -> str:
    """``::error file=…,line=…::message``; columns only within one line, as GitHub wants."""
    properties: dict[str, object] = {"file": item.file_name}
    if item.span:
        line, column, end_line, end_column = item.span.corners
        properties |= {"line": line, "endLine": end_line}
        if end_line == line:
            properties |= {"col": column, "endColumn": end_column}
    properties["title"] = item.code
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    text = item.message if item.help is None else f"{item.message}\nhelp: {item.help}"
    return f"::{item.severity.value} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def render_sarif(diagnostics: Iterable[Diagnostic], version: str) -> str:
    """Return a SARIF log with one run of rlc ``version``, for code scanning and editors."""
    ordered = in_order(diagnostics)
    codes = sorted({item.code for item in ordered})
    run = {
        "tool": {"driver": {"name": "rlc", "version": version, "rules": [*map(_rule, codes)]}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, codes) for item in ordered],
    }
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2)


def _rule(code: str) -> dict[str, object]:
    return {
        "id": code,
        "shortDescription": {"text": CODES[code]},
        "help": {"text": f"`rlc explain {code}` says what it means, with examples"},
    }


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
        places = [_location(label.span.source.name, label.span) for label in item.labels]
        result["relatedLocations"] = [
            {"id": number, "message": {"text": label.text}, **place}
            for number, (label, place) in enumerate(zip(item.labels, places, strict=True), 1)
        ]
    if item.fix:
        result["fixes"] = [_sarif_fix(item.fix)]
    return result


def _location(file: str, span: Span | None) -> dict[str, object]:
    region = {"region": _region(span)} if span else {}
    return {"physicalLocation": {"artifactLocation": _artifact(file), **region}}


def _artifact(file: str) -> dict[str, str]:
    """SARIF names files by URI references: relative paths, or `file:` for absolute ones."""
    from urllib.parse import quote  # slow to import, and render_human comes by here

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
