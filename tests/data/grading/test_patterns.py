"""Texts that a pattern finds, which `regex` is tried on."""

from __future__ import annotations

import re

import pytest

from rlc.data.grading.graders import Grader, wrongly_graded
from rlc.data.grading.patterns import found_with


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"Answer: (.+)", "Answer: 42"),
        (r"(?i)answer(?: is)?[:\s]+\**([^\n*]+)", "answer:42"),
        (r"(?s)<answer>(.*?)</answer>", "<answer>42</answer>"),
        (r"\\boxed\{(.*)\}", r"\boxed{42}"),
        (r"([0-9]+)[^0-9]*$", "42"),
        (r"\b(\d+)\b (?:apples|pears)", "42 apples"),
        (r"x{2}(?:(?P<answer>\d+)|none)?", "xx42"),
        (r"[^0-9](\d+)\W", "x42 "),
        (r"[0-9]+", "42"),
    ],
)
def test_a_text_that_a_pattern_finds(pattern: str, text: str) -> None:
    assert found_with(pattern, ["42"]) == [text]
    assert re.search(pattern, text)


@pytest.mark.parametrize("pattern", [r"(?<=: )(\d+)", r"(a)=\1", r"(\d){2}", r"(?!x)(\d+)\b(?=y)"])
def test_what_is_not_known_is_not_tried(pattern: str) -> None:
    assert found_with(pattern, ["42"]) == []
    assert not wrongly_graded(Grader("regex", "answer", pattern), {"answer": "42"})


@pytest.mark.parametrize(
    ("pattern", "wrong"),
    [
        (r"Answer: ([a-z]+)$", ["42", "4", "-1", "B"]),
        (r"nswer: *([0-9])", ["42", "-1", "yes", "B"]),
        (r".*([0-9]+)", ["42", "-1", "yes", "B"]),  # what is greedy leaves one digit
        (r"Answer: (-?[0-9]+)", ["yes", "B"]),
        (r"Answer: (.+)", []),
        (r"\(([A-D])\)", ["42", "4", "-1", "yes"]),
    ],
)
def test_a_pattern_is_tried_on_the_answers_of_rows(pattern: str, wrong: list[str]) -> None:
    grader = Grader("regex", "answer", pattern)
    answers = ("42", "4", "-1", "yes", "B")
    assert [a for a in answers if wrongly_graded(grader, {"answer": a})] == wrong
