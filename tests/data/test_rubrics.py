"""Rubrics: what is read of them, and what is no rubric."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlc.data.errors import DataError
from rlc.data.texts import Criterion, Rubric, read_rubric, row_criteria

LISTED = """\
# How to judge

Be fair: a short reply may be a good one.

- this list is part of the text

## Criteria

- correct (3): the answer is right,
  also in its units
- **clear**: a beginner understands it
* brief (0.5): no more words than it takes

## Afterwards

Do not explain the criteria.
"""


def test_the_items_under_their_heading_are_criteria(tmp_path: Path) -> None:
    path = tmp_path / "rubric.md"
    path.write_text(LISTED, encoding="utf-8")
    read = read_rubric(str(path))
    assert read.criteria == (
        Criterion("correct", "the answer is right, also in its units", 3.0),
        Criterion("clear", "a beginner understands it"),
        Criterion("brief", "no more words than it takes", 0.5),
    )
    assert "this list is part of the text" in read.text
    assert read.text.endswith("Do not explain the criteria.")
    assert "correct" not in read.text


def test_a_text_of_its_own_is_one_question() -> None:
    assert read_rubric("Is it kind?") == Rubric("Is it kind?")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        (" \n\n", "is empty"),
        ("## Criteria\n", "is empty"),
        ("## Criteria\n- no name here\n", "no criterion"),
        ("## Criteria\n- a (none): b\n", "no criterion"),
        ("## Criteria\n- a (0): b\n", "no criterion"),
        ("## Criteria\n- a: b\n- a: c\n", "two criteria called `a`"),
        ("## Criteria\nwords\n", "no item"),
    ],
)
def test_what_is_no_rubric_says_where(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "rubric.md"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=says) as raised:
        read_rubric(str(path))
    if "criteria" in text.casefold() and "empty" not in says:
        assert raised.value.place is not None
        assert raised.value.place.line == len(text.splitlines())


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("is it right?", [("criterion_1", "is it right?", 1.0)]),
        (["a", "b"], [("criterion_1", "a", 1.0), ("criterion_2", "b", 1.0)]),
        ([{"name": "x y", "criterion": "a", "weight": 2}], [("x_y", "a", 2.0)]),
        ([{"rubric_str": "a"}, {"title": "t", "points": "3", "text": "b"}], None),
    ],
)
def test_a_row_has_criteria_of_its_own(value: Any, expected: Any) -> None:
    found = [(one.name, one.text, one.weight) for one in row_criteria({"rubric": value}, "rubric")]
    assert found == (expected or [("criterion_1", "a", 1.0), ("t", "b", 3.0)])


@pytest.mark.parametrize(
    "value", [None, "", [], [1], [{"name": "a"}], [{"text": "a", "weight": -1}]]
)
def test_rows_without_criteria_are_errors(value: Any) -> None:
    with pytest.raises(DataError, match="the field `rubric` has no criteria"):
        row_criteria({"rubric": value}, "rubric")


def test_a_rubric_shows_fields_of_the_row() -> None:
    rubric = read_rubric(
        "By {{ row.by }}, at best {{row.best}}.\n## Criteria\n- a: as {{ row.by }}"
    )
    assert rubric.fields == ("by", "best")
    filled = rubric.of_row({"by": "{{ row.best }}", "best": 5, "own": "b"}, "own")
    assert filled.text == "By {{ row.best }}, at best 5."  # what a row says is not filled in again
    assert [one.text for one in filled.criteria] == ["as {{ row.best }}", "b"]


@pytest.mark.parametrize(
    ("row", "says"),
    [(None, "there are no rows"), ({"a": 1}, "no field `by`"), ({"by": ""}, "`by` is empty")],
)
def test_a_row_without_what_the_rubric_shows_is_an_error(row: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        read_rubric("By {{ row.by }}").of_row(row, None)


def test_a_rubric_without_fields_is_the_same_for_all() -> None:
    rubric = read_rubric("By {{ by }}, {row.by} and {{ row }}")
    assert rubric.fields == ()
    assert rubric.of_row(None, None) is rubric
