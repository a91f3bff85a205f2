"""Findings for programs: JSON, SARIF and GitHub's annotations."""

from __future__ import annotations

import json
from typing import Any

from rlc.lang.codes import code_titles
from rlc.lang.diagnostics import Diagnostic, Diagnostics, Fix, Label, Severity, replace
from rlc.lang.render import render_github, render_json, render_sarif
from rlc.lang.source import Source, Span

SOURCE = Source("dir/a b.rl", 'env x = gm("easy")\nenv é = 1, 2\n')
OTHER = Source("lib.rl", "model m {\n}\n")


def span(text: str, source: Source = SOURCE) -> Span:
    start = source.text.index(text)
    return Span(source, start, start + len(text))


def findings() -> Diagnostics:
    found = Diagnostics()
    found.append(Diagnostic("RL0001", Severity.ERROR, "no such file", None, file="gone.rl"))
    fix = replace(span("gm"), "gem", "write `gem`")
    found.error("RL0103", span("gm"), "unknown", "did you mean `gem`?", fix=fix)
    here = Label(span("m {\n}", OTHER), "declared here")
    found.warning("RL0114", span("é"), "50% of: this,\nthat", None, here)
    return found


def test_json_has_every_field() -> None:
    named, warned, unread = json.loads(render_json(findings()))
    assert named == {
        "code": "RL0103",
        "severity": "error",
        "message": "unknown",
        "file": "dir/a b.rl",
        "line": 1,
        "column": 9,
        "end_line": 1,
        "end_column": 11,
        "help": "did you mean `gem`?",
        "labels": [],
        "fix": {
            "title": "write `gem`",
            "safe": True,
            "edits": [
                {
                    "file": "dir/a b.rl",
                    "line": 1,
                    "column": 9,
                    "end_line": 1,
                    "end_column": 11,
                    "replacement": "gem",
                }
            ],
        },
    }
    assert warned["severity"] == "warning"
    assert warned["help"] is warned["fix"] is None
    assert warned["labels"] == [
        {
            "text": "declared here",
            "file": "lib.rl",
            "line": 1,
            "column": 7,
            "end_line": 2,
            "end_column": 2,
        }
    ]
    assert unread["file"] == "gone.rl"
    assert unread["line"] is unread["column"] is unread["end_line"] is unread["end_column"] is None
    assert json.loads(render_json([])) == []


def test_github_escapes_what_would_end_a_property() -> None:
    source = Source("a,b:c%.rl", "x\n")
    found = Diagnostics()
    found.error("RL0010", Span(source, 0, 1), "100%:\r\nso, it")
    assert render_github(found) == (
        "::error file=a%2Cb%3Ac%25.rl,line=1,endLine=1,col=1,endColumn=2,title=RL0010"
        "::100%25:%0D%0Aso, it\n"
    )


def test_github_names_what_it_can() -> None:
    error, warning, unread = render_github(findings()).splitlines()
    assert error == (
        "::error file=dir/a b.rl,line=1,endLine=1,col=9,endColumn=11,title=RL0103"
        "::unknown%0Ahelp: did you mean `gem`?"
    )
    assert warning.startswith("::warning file=dir/a b.rl,line=2,")
    assert unread == "::error file=gone.rl,title=RL0001::no such file"
    many = Diagnostics()
    many.error("RL0011", Span(OTHER, 0, 11), "over two lines")
    assert (
        render_github(many) == "::error file=lib.rl,line=1,endLine=2,title=RL0011::over two lines\n"
    )


def sarif(found: Diagnostics) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(render_sarif(found, "1.2.3"))
    return log


def test_sarif_has_what_the_standard_requires() -> None:
    """Required properties of SARIF 2.1.0 (OASIS, sections 3.13 to 3.58), by hand."""
    log = sarif(findings())
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("rlc", "1.2.3")
    assert run["columnKind"] == "unicodeCodePoints"  # else readers count UTF-16 units
    assert [rule["id"] for rule in driver["rules"]] == ["RL0001", "RL0103", "RL0114"]
    for rule in driver["rules"]:
        assert rule["shortDescription"]["text"] == code_titles()[rule["id"]]
        assert rule["id"] in rule["help"]["text"]
    for result in run["results"]:
        assert driver["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["level"] in ("error", "warning", "note", "none")
        assert result["message"]["text"]
        for location in result["locations"]:
            assert location["physicalLocation"]["artifactLocation"]["uri"]


def test_sarif_places_labels_and_fixes() -> None:
    named, warned, unread = sarif(findings())["runs"][0]["results"]
    place = named["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "dir/a%20b.rl"}
    region = {"startLine": 1, "startColumn": 9, "endLine": 1, "endColumn": 11}
    assert place["region"] == region
    (fix,) = named["fixes"]
    assert fix["description"]["text"] == "write `gem`"
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"] == {"uri": "dir/a%20b.rl"}
    assert change["replacements"] == [
        {"deletedRegion": region, "insertedContent": {"text": "gem"}},
    ]
    (related,) = warned["relatedLocations"]
    assert related["message"]["text"] == "declared here"
    assert related["physicalLocation"]["artifactLocation"] == {"uri": "lib.rl"}
    assert related["physicalLocation"]["region"]["endLine"] == 2
    assert "fixes" not in warned
    assert "region" not in unread["locations"][0]["physicalLocation"]


def test_sarif_groups_a_fix_by_file_and_names_absolute_paths_by_uri() -> None:
    absolute = Source("/tmp/x y.rl", "env z = 1\n")
    edits = ((span("gm"), "a"), (span("z", absolute), "b"), (span("é"), "c"))
    found = Diagnostics()
    found.error("RL0102", span("gm"), "message", fix=Fix("rename", edits))
    (result,) = sarif(found)["runs"][0]["results"]
    first, second = result["fixes"][0]["artifactChanges"]
    assert len(first["replacements"]) == 2
    assert second["artifactLocation"] == {"uri": "file:///tmp/x%20y.rl"}


def test_an_empty_sarif_log_says_that_nothing_was_found() -> None:
    (run,) = sarif(Diagnostics())["runs"]
    assert run["results"] == []  # absent results would mean that nothing was checked
    assert run["tool"]["driver"]["rules"] == []
