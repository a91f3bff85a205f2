"""Diagnostics for programs: JSON, SARIF 2.1.0, and the annotations of GitHub's workflows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

from rlc.lang.codes import CODES
from rlc.lang.diagnostics import Diagnostic, Fix, Label, in_order
from rlc.lang.source import Span

_SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """A JSON array with one object for each finding; places are 1-based, ends just past."""
    return json.dumps(finding_dicts(diagnostics), indent=2)


def finding_dicts(diagnostics: Iterable[Diagnostic]) -> list[dict[str, object]]:
    """The findings in their order, as `render_json` writes them."""
    return [_record(item) for item in in_order(diagnostics)]


def render_github(diagnostics: Iterable[Diagnostic]) -> str:
    """One workflow command a line: GitHub shows each beside the line of the pull request."""
    return "".join(f"{_command(item)}\n" for item in in_order(diagnostics))


def render_sarif(diagnostics: Iterable[Diagnostic], version: str) -> str:
    """A SARIF log with one run of rlc ``version``, for code scanning and editors."""
    ordered = in_order(diagnostics)
    codes = sorted({item.code for item in ordered})
    run = {
        "tool": {
            "driver": {
                "name": "rlc",
                "version": version,
                "rules": [_rule(code) for code in codes],
            }
        },
        "columnKind": "unicodeCodePoints",
        "results": [_result(item, codes) for item in ordered],
    }
    log = {"$schema": _SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(log, indent=2)


# JSON


def _record(item: Diagnostic) -> dict[str, object]:
    return {
        "code": item.code,
        "severity": item.severity.value,
        "message": item.message,
        "file": item.file_name,
        **_place(item.span),
        "help": item.help,
        "labels": [_label(label) for label in item.labels],
        "fix": item.fix and _fix(item.fix),
    }


def _place(span: Span | None) -> dict[str, int | None]:
    line = column = end_line = end_column = None
    if span:
        line, column = span.line, span.column
        end_line, end_column = span.end_position
    return {"line": line, "column": column, "end_line": end_line, "end_column": end_column}


def _label(label: Label) -> dict[str, object]:
    return {"text": label.text, "file": label.span.source.name, **_place(label.span)}


def _fix(fix: Fix) -> dict[str, object]:
    edits = [
        {"file": span.source.name, **_place(span), "replacement": text} for span, text in fix.edits
    ]
    return {"title": fix.title, "safe": fix.safe, "edits": edits}


# GitHub


def _command(item: Diagnostic) -> str:
    """``::error file=…,line=…::message``; columns only within one line, as GitHub wants."""
    properties: dict[str, object] = {"file": item.file_name}
    if item.span:
        end_line, end_column = item.span.end_position
        properties |= {"line": item.span.line, "endLine": end_line}
        if end_line == item.span.line:
            properties |= {"col": item.span.column, "endColumn": end_column}
    properties["title"] = item.code
    listed = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    text = item.message if item.help is None else f"{item.message}\nhelp: {item.help}"
    return f"::{item.severity.value} {listed}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# SARIF


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
    place: dict[str, object] = {"artifactLocation": _artifact(file)}
    if span:
        place["region"] = _region(span)
    return {"physicalLocation": place}


def _artifact(file: str) -> dict[str, str]:
    """SARIF names files by URI references: relative paths, or `file:` for absolute ones."""
    from urllib.parse import quote  # slow to import, and render_human comes by here

    path = quote(os.path.normpath(file).replace(os.sep, "/"))
    return {"uri": f"file://{path}" if os.path.isabs(file) else path}


def _region(span: Span) -> dict[str, int]:
    end_line, end_column = span.end_position
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": end_line,
        "endColumn": end_column,
    }


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
