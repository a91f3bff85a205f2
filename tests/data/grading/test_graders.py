"""Is a reply right? Each grader by value, and what it does with bad input."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.errors import DataError
from rlc.data.grading.graders import (
    Grader,
    boxed,
    final_answer,
    number_in,
    require_gradable,
    tagged,
)

RIGHT, WRONG, NONE = 1.0, 0.0, None


def grade(grader: str, reply: str, answer: Any, **plan: Any) -> float | None:
    return Grader(grader, "answer", **plan)(reply, {"answer": answer})


@pytest.mark.parametrize(
    ("text", "held"),
    [
        ("\\boxed{7}", "7"),
        ("first \\boxed{1}, no: \\boxed{ 2 }.", "2"),
        ("\\boxed{\\frac{1}{2}} {", "\\frac{1}{2}"),
        ("over\n\\boxed{a\nb}\nlines", "a\nb"),
        ("\\boxed{\\boxed{3}}", "3"),
        ("\\boxed{5", None),
        ("boxed{5}", None),
        ("}\\boxed {6}", "6"),
    ],
)
def test_what_a_box_holds(text: str, held: str | None) -> None:
    assert boxed(text) == held


@given(st.text(alphabet="\\boxed{} <answer>/1", max_size=80))
def test_no_reply_breaks_the_search_for_an_answer(text: str) -> None:
    assert final_answer(text) != ""
    assert boxed(text + "\\boxed{9}") == "9"


def test_tags_in_any_case_on_several_lines() -> None:
    text = "<answer>one</answer> <ANSWER>\n two \n</Answer>"
    assert (tagged(text), tagged(text, last=False)) == ("two", "one")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1,234", 1234),
        ("1,234,567.5", 1234567.5),
        ("1,23", None),
        ("$5.50", 5.5),
        ("\\$1{,}000", 1000),
        ("12%", 12),
        ("5.", 5),
        (".5", 0.5),
        ("-2", -2),
        ("−2", -2),
        ("3/4", 0.75),
        ("3/0", None),
        ("1e3", 1000),
        ("1e9999", None),
        ("9" * 400, None),
        ("five", None),
        ("", None),
    ],
)
def test_numbers(text: str, number: float | None) -> None:
    assert number_in(text) == number


@pytest.mark.parametrize(
    ("reply", "answer", "expected"),
    [
        ("\\boxed{1,234}", "1234", RIGHT),
        ("so it is 1,234.", 1234, RIGHT),
        ("#### 72", "48/2 = 24\n48+24 = 72\n#### 72", RIGHT),
        ("it was 3, then 4", "3", WRONG),
        ("\\boxed{3} and 4", "3", RIGHT),
        ("\\boxed{many}", "3", NONE),
        ("no idea", "3", NONE),
        ("1000001", "1000000", WRONG),
        ("0.3333333", "1/3", RIGHT),
        ("0.333", "1/3", WRONG),
        ("10-5", "5", RIGHT),
    ],
)
def test_numeric(reply: str, answer: object, expected: float | None) -> None:
    assert grade("numeric", reply, answer) == expected


@pytest.mark.parametrize(
    ("reply", "answer", "expected"),
    [
        ("Paris", "Paris", RIGHT),
        ("  two\n words ", "two words", RIGHT),
        ("I say <answer>Paris</answer>", "Paris", RIGHT),
        ("I say Paris", "Paris", WRONG),
        ("paris", "Paris", WRONG),
        ("  ", "Paris", NONE),
    ],
)
def test_exact(reply: str, answer: str, expected: float | None) -> None:
    assert grade("exact", reply, answer) == expected


@pytest.mark.parametrize(
    ("pattern", "reply", "expected"),
    [
        (r"answer: (\w+)", "answer: B, no, answer: A", RIGHT),
        (r"answer: (\w+)", "A", NONE),
        ("[ABC]", "B A", RIGHT),
        (r"x|(A)", "x", NONE),  # a group that took no part
        (r"answer: (\w+)", "answer: B", WRONG),
    ],
)
def test_regex(pattern: str, reply: str, expected: float | None) -> None:
    assert grade("regex", reply, "A", pattern=pattern) == expected


@pytest.mark.parametrize(
    ("reply", "answer", "expected"),
    [
        ("\\boxed{\\frac{1}{2}}", "0.5", RIGHT),
        ("\\boxed{\\frac{1}{2}}", "\\dfrac12", RIGHT),
        ("\\boxed{x+1}", "1+x", RIGHT),
        ("\\boxed{1,234}", "1234", RIGHT),
        ("\\boxed{2}", "The sum is \\boxed{3}", WRONG),
        ("<answer>3</answer>", "The sum is \\boxed{3}", RIGHT),
        ("it is 3", "3", NONE),
        ("\\boxed{}", "3", NONE),
    ],
)
def test_math(reply: str, answer: str, expected: float | None) -> None:
    pytest.importorskip("math_verify")
    assert grade("math", reply, answer) == expected


def test_an_endless_answer_is_not_compared() -> None:
    pytest.importorskip("math_verify")
    assert grade("math", "\\boxed{" + "9+" * 2_000 + "9}", "3") == NONE


def test_cookbook_math_is_the_cookbooks_own_grader() -> None:
    """A hundred replies to each other's answers, and replies that mark none."""
    theirs = pytest.importorskip("tinker_cookbook.recipes.math_rl.math_grading")
    answers = (
        *("1234", "1,234", "0.5", "\\frac{1}{2}", "\\dfrac12", "1/2"),
        *("(1, 2)", "(1,2)", "x+1", "1+x"),
    )
    replies = [f"It is \\boxed{{{answer}}}." for answer in answers]
    for gold in answers:
        for reply in replies:
            expected = theirs.grade_answer(theirs.extract_boxed(reply), gold)
            assert grade("cookbook_math", reply, gold) == float(expected), (reply, gold)
    for reply in ("It is 3.", "} \\boxed{3}", "<answer>3</answer>"):
        with pytest.raises(ValueError, match=r"Unmatched|No boxed"):
            theirs.extract_boxed(reply)
        assert grade("cookbook_math", reply, "3") == NONE


@pytest.mark.parametrize(
    ("grader", "module", "package"),
    [
        ("math", "math_verify", "math-verify"),
        ("cookbook_math", "pylatexenc", "tinker-cookbook"),
    ],
)
def test_a_grader_says_what_it_needs(
    grader: str, module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(DataError, match=f"needs {package}: pip install"):
        Grader(grader, "answer")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<answer> (1 + 2) * 3 </answer>", RIGHT),
        ("<answer>1</answer> better: <answer>3*(1+2)</answer>", RIGHT),
        ("<answer>1 + 2 + 3</answer>", WRONG),
        ("<answer>3 * 3</answer>", WRONG),
        ("<answer>3**2</answer>", NONE),
        ("<answer>(1 + 2) * 3 = 9</answer>", NONE),
        ("(1 + 2) * 3", NONE),
    ],
)
def test_countdown(reply: str, expected: float | None) -> None:
    grader = Grader("countdown", "answer")
    assert grader(reply, {"nums": [1, 2, 3], "target": 9}) == expected
    assert grader(reply, {"nums": "[1 2 3]", "answer": "9"}) == expected  # from a .csv file


def test_a_pattern_that_is_none() -> None:
    with pytest.raises(DataError, match="is no regular expression"):
        Grader("regex", "a", pattern="(")


def test_answers_that_cannot_be_compared() -> None:
    with pytest.raises(DataError, match="'many' is no number"):
        require_gradable("numeric", "answer", {"answer": "many"})
    for row in ({"answer": "9"}, {"nums": [1], "target": None}, {"nums": ["x"], "target": 1}):
        with pytest.raises(DataError, match="whole numbers in the fields `nums` and `target`"):
            require_gradable("countdown", "answer", row)
