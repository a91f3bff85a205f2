"""How diagnostics look, to a person and to a program."""

from __future__ import annotations

import re

from rlc.lang import Diagnostic, Diagnostics, Label, Severity, Source, Span
from rlc.lang.render import render_human

SOURCE = Source("a.rl", 'env x = gm("easy")\nenv y = x\n\ttrain 数 = 1\n')


def span(text: str, source: Source = SOURCE) -> Span:
    start = source.text.index(text)
    return Span(source, start, start + len(text))


def test_an_excerpt_shows_place_mark_label_and_help() -> None:
    found = Diagnostics()
    label = Label(span("x ="), "declared here")
    found.error("RL0101", span("gm"), "unknown source `gm`", "did you mean `gem`?", label)
    assert render_human(found, color=False) == (
        "error[RL0101]: unknown source `gm`\n"
        " --> a.rl:1:9\n"
        "  |\n"
        '1 | env x = gm("easy")\n'
        "  |         ^^\n"
        "  |     --- declared here\n"
        "  = help: did you mean `gem`?\n"
        "\n"
        "1 error\n"
    )


def test_marks_stand_under_tabs_and_wide_characters() -> None:
    found = Diagnostics()
    found.warning("RL0401", span("数"), "wide")
    found.warning("RL0401", span("= 1"), "after")
    lines = render_human(found, color=False).splitlines()
    assert lines[3:5] == ["3 |     train 数 = 1", "  |           ^^"]
    assert lines[9:11] == ["3 |     train 数 = 1", "  |              ^^^"]


def test_a_long_line_is_cut_around_the_mark() -> None:
    source = Source("long.rl", "a" * 500 + " MARK " + "b" * 500)
    found = Diagnostics()
    found.error("RL0010", span("MARK", source), "here")
    lines = render_human(found, color=False).splitlines()
    assert max(len(line) for line in lines) < 110
    start = lines[4].index("^")
    assert lines[3][start : start + 4] == "MARK"
    assert lines[3].startswith("1 | …")
    assert lines[3].endswith("…")


def test_a_span_over_lines_is_marked_on_its_first() -> None:
    found = Diagnostics()
    found.error("RL0010", Span(SOURCE, 8, 28), "long")
    assert '1 | env x = gm("easy")\n  |         ^^^^^^^^^^\n' in render_human(found, color=False)


def test_a_label_in_another_file_names_it() -> None:
    other = Source("lib.rl", "env x = 1\n")
    found = Diagnostics()
    found.error("RL0102", span("y"), "twice", None, Label(span("x", other), "first here"))
    text = render_human(found, color=False)
    assert " ::: lib.rl:1:5\n" in text
    assert "----- first here" not in text
    assert "- first here" in text


def test_control_characters_never_reach_the_terminal() -> None:
    source = Source("evil.rl", "env x = \x1b[31m")
    found = Diagnostics()
    found.error("RL0015", Span(source, 8, 9), "no meaning")
    assert "\x1b" not in render_human(found, color=False)


def test_colour_only_adds_escapes() -> None:
    found = Diagnostics()
    found.error("RL0101", span("gm"), "unknown", "help", Label(span("x ="), "here"))
    colored = render_human(found, color=True)
    assert "\x1b[31;1m" in colored
    assert re.sub(r"\x1b\[[\d;]*m", "", colored) == render_human(found, color=False)


def test_findings_come_by_file_and_place_and_are_counted() -> None:
    found = Diagnostics()
    found.warning("RL0401", span("y"), "third")
    found.error("RL0101", span("gm"), "second")
    found.append(Diagnostic("RL0001", Severity.ERROR, "gone", None, None, file="A.rl"))
    found.error("RL0102", span("x ="), "first")
    text = render_human(found, color=False)
    assert re.findall(r"^\w+\[RL\d+\]: (\w+)$", text, re.M) == ["gone", "first", "second", "third"]
    assert text.endswith("\n3 errors, 1 warning\n")
    assert render_human([], color=True) == ""


def test_a_control_character_in_a_message_does_not_reach_the_terminal() -> None:
    source = Source("a.rl", 'x = "y"')
    found = Diagnostics()
    label = Label(Span(source, 0, 1), "a\x1b[2J")
    found.error("RL0010", Span(source, 4, 7), 'no model "a\nb\x1b[31m"', "write\rthis", label)
    text = render_human(found, color=False)
    assert 'no model "a\\nb\\x1b[31m"' in text
    assert "write\\rthis" in text
    assert set(text) & {"\x1b", "\r"} == set()
