"""Fixes: applied they give what was meant, never another recipe."""

from __future__ import annotations

import pytest
from test_recovery import RECIPE, SLIPS

from rlc.lang import Diagnostics, Fix, Source, Span, fix_all, replace
from rlc.lang.fixes import MAX_ROUNDS, apply_fixes
from rlc.lang.syntax import parse

MEANT = parse(Source("test.rl", RECIPE))[0]

# Slips whose repair is not clear: a value, a name or a unit is missing, or two readings are likely.
UNCLEAR = {
    "4e-5x",
    "model {",
    "model my policy {",
    "lora_rank =",
    "// lora_rank = 32",
    "Qwen\\Qwen3-8B",
    "3 * sudoku + * 1",
    "1 *",
    "steps     = .5.1",
    "steps     = 200 300",
}


def syntax(source: Source) -> Diagnostics:
    return parse(source)[1]


def fixed(text: str) -> tuple[str, Diagnostics]:
    result = fix_all(Source("test.rl", text), syntax)
    return result.source.text, result.remaining


@pytest.mark.parametrize(("before", "after"), SLIPS)
def test_a_slip_is_undone_or_left_alone(before: str, after: str) -> None:
    text, remaining = fixed(RECIPE.replace(before, after, 1))
    if any(unclear in after for unclear in UNCLEAR):
        return
    assert not remaining
    assert parse(Source("test.rl", text))[0] == MEANT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = .5", "x = 0.5"),
        ("x = at(a.b = 8) > at(a.b = 9) - 2%", "x = at(a.b == 8) > at(a.b == 9) - 2%"),
        ("x = 5.", "x = 5.0"),
        ("x = 90sec", "x = 90s"),
        ("x = 2hours", "x = 2h"),
        ("x = $ 25", "x = $25"),
        ("x = 10 %", "x = 10%"),
        ("x = 'a b'", 'x = "a b"'),
        ("x = “a”", 'x = "a"'),
        ("x = `a`", 'x = "a"'),
        (r'x = "\boxed{}"', r'x = "\\boxed{}"'),
        ("x = 1;", "x = 1"),
        ("x\u00a0= 1", "x = 1"),
        ("x = a | f()", "x = a |> f()"),
        ("x == 1", "x = 1"),
        ("x: 1", "x = 1"),
        ("x 1", "x = 1"),
        ("lora-rank = 1", "lora_rank = 1"),
        ("a-b-c = 1", "a_b_c = 1"),
        ("x = f(1 of = 2)", "x = f(1, of = 2)"),
        ("x = [1 2]", "x = [1, 2]"),
        ("x = 'it's'", 'x = "it\'s"'),
        ("x = f('a b) |> g()", 'x = f("a b") |> g()'),
        ("x = f('a) |> g('b')", 'x = f("a") |> g("b")'),
        ("x = Qwen/Qwen2.5-7B-Instruct", 'x = "Qwen/Qwen2.5-7B-Instruct"'),
        ("x = f(game:Sudoku-v0-easy)", 'x = f("game:Sudoku-v0-easy")'),
        ("x = f(url = http://127.0.0.1:80/a)", 'x = f(url = "http://127.0.0.1:80/a")'),
        ("x = ./models/a-1", 'x = "./models/a-1"'),
        (
            'x = f(a = Think it over well, then say so.")',
            'x = f(a = "Think it over well, then say so.")',
        ),
        ("x = f(of 2)", "x = f(of = 2)"),
        ("x = f(1,, 2)", "x = f(1, 2)"),
        ("x = f((1, of = 2)", "x = f(1, of = 2)"),
        ("x = f(1, of = 2))", "x = f(1, of = 2)"),
        ("x = f 1, of = 2)", "x = f( 1, of = 2)"),
        ("x = f(1, of = 2", "x = f(1, of = 2)"),
        ("x = [1, 2)", "x = [1, 2]"),
        ("x = f(1), g(2)]", "x = [f(1), g(2)]"),
        ("x = [f(1), g(2)]]", "x = [f(1), g(2)]"),
        ('x = "a', 'x = "a"'),
        ('x = a"', 'x = "a"'),
        ('x = f(a:b") |> g("c")', 'x = f("a:b") |> g("c")'),
        ('x = f("a:b) |> g("c")', 'x = f("a:b") |> g("c")'),
        ('x = ""a"', 'x = "a"'),
        ('x = 8"', "x = 8"),
        ("// note\n  x = 1", "# note\n  x = 1"),
    ],
)
def test_what_is_clear_is_written(before: str, after: str) -> None:
    text, remaining = fixed(f"train t {{\n  {before}\n}}\n")
    assert text == f"train t {{\n  {after}\n}}\n"
    assert not remaining


@pytest.mark.parametrize(
    "line",
    [
        "x = 2k",
        "x = 1 2",
        "x = f(1 2)",
        "x = f(a = Don't think)",
        "x = f(a = Think first, then answer)",
        'x = f(a =  Think first.")',
        'x = f(a = Think, then say so.")',
        "x = a/2k",
        "x = f(a b)",
        "x = 3 * a |> f()",
        "x = #",
        "x = @a",
        "x = 1)",
        'x = {"a": 1}',
        "x = f {a = 1}",
    ],
)
def test_what_is_not_clear_is_left_alone(line: str) -> None:
    text = f"train t {{\n  {line}\n}}\n"
    assert fixed(text)[0] == text


def test_a_missing_brace_gets_a_line_of_its_own_after_the_comment() -> None:
    text, remaining = fixed("model m {\n  a = 1  # why\n\nenv e = 2\n")
    assert text == "model m {\n  a = 1  # why\n}\n\nenv e = 2\n"
    assert not remaining


def apply(text: str, *fixes: Fix) -> str:
    source = Source("a.rl", text)
    found = Diagnostics()
    for fix in fixes:
        spans = tuple((Span(source, s.start, s.end), new) for s, new in fix.edits)
        found.error("RL0010", spans[0][0], "m", fix=Fix(fix.title, spans, fix.safe))
    return apply_fixes(source, found)[0]


def at(start: int, end: int, text: str, safe: bool = True) -> Fix:
    return replace(Span(Source("", ""), start, end), text, "t", safe)


def test_of_overlapping_fixes_the_first_is_applied() -> None:
    assert apply("abcd", at(0, 2, "X"), at(1, 3, "Y"), at(3, 4, "Z")) == "XcZ"
    assert apply("abcd", at(2, 2, "+"), at(2, 2, "-")) == "ab+cd"
    assert apply("abcd", at(2, 2, "+"), at(2, 3, "-")) == "ab+-d"


def test_a_proposal_is_not_applied() -> None:
    assert apply("abcd", at(0, 1, "X", safe=False), at(1, 2, "Y")) == "aYcd"


def test_a_fix_with_a_part_in_another_file_is_not_applied() -> None:
    source, other = Source("a.rl", "abc"), Source("b.rl", "abc")
    found = Diagnostics()
    fix = Fix("both", ((Span(source, 0, 1), "X"), (Span(other, 0, 1), "X")))
    found.error("RL0102", Span(source, 0, 1), "m", fix=fix)
    assert apply_fixes(source, found) == ("abc", [])


def test_fixes_that_bring_each_other_about_come_to_an_end() -> None:
    def flips(source: Source) -> Diagnostics:
        found = Diagnostics()
        span = Span(source, 0, 1)
        other = "b" if source.text == "a" else "a"
        found.error("RL0010", span, "m", fix=replace(span, other, "flip"))
        return found

    assert fix_all(Source("x.rl", "a"), flips).source.text in "ab"

    def grows(source: Source) -> Diagnostics:
        found = Diagnostics()
        span = Span(source, 0, 0)
        found.error("RL0010", span, f"m{source.text}", fix=replace(span, "x", "grow"))
        return found

    assert len(fix_all(Source("x.rl", "a"), grows).applied) == MAX_ROUNDS


def test_a_fix_that_does_not_help_is_left_alone() -> None:
    """One leaves its mistake, one brings two more about; the third is still applied."""

    def check(source: Source) -> Diagnostics:
        found, text = Diagnostics(), source.text
        place = Span(source, 0, 1)
        found.error("RL0010", place, "stays", fix=replace(place, "x", "in vain"))
        if "b" in text:
            where = Span(source, text.index("b"), text.index("b") + 1)
            found.error("RL0010", where, "breeds", fix=replace(where, "y", "worse"))
        for _ in range(2 * text.count("y")):
            found.error("RL0010", place, "bred")
        if "c" in text:
            where = Span(source, text.index("c"), text.index("c") + 1)
            found.error("RL0010", where, "helps", fix=replace(where, "z", "better"))
        return found

    fixed = fix_all(Source("x.rl", "abc"), check)
    assert fixed.source.text == "abz"
    assert [item.message for item in fixed.applied] == ["helps"]
