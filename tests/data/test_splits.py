"""Parts of data: complements never overlap and are everything, by order and by content."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.errors import DataError, FilePlace
from rlc.data.rows import DataRow
from rlc.data.splits import NoSplitError, rows_of_split, said


def rows(questions: list[Any], **more: Any) -> list[DataRow]:
    return [
        DataRow({"question": question, **more}, FilePlace("x.jsonl", number, number))
        for number, question in enumerate(questions, start=1)
    ]


def part(side: str, share: float, by: str = "order", of: str = "train") -> dict[str, Any]:
    return {"part": side, "share": share, "by": by, "of": of}


def taken(data: list[DataRow], split: Any) -> list[DataRow]:
    try:
        return list(rows_of_split("x.jsonl", data, split, "question"))
    except NoSplitError:
        raise
    except DataError:  # the part is empty
        return []


# As a recipe writes them: `first(33.3%)` is 33.3 / 100, `last(66.7%)` 66.7 / 100.
TENTHS = st.integers(1, 999)


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=80),
    TENTHS,
    st.sampled_from(["order", "hash"]),
)
def test_complements_are_disjoint_and_everything(
    questions: list[int], tenths: int, by: str
) -> None:
    data = rows([str(question) for question in questions])
    first = taken(data, part("first", tenths / 10 / 100, by))
    last = taken(data, part("last", (1000 - tenths) / 10 / 100, by))
    assert sorted([*first, *last], key=lambda row: row.place.row) == data
    if by == "hash":  # equal questions stay together
        asked, held_out = ({row.fields["question"] for row in side} for side in (first, last))
        assert not asked & held_out


@given(st.lists(st.text(), min_size=1, max_size=40, unique=True), TENTHS, st.randoms())
def test_by_hash_a_row_stays_on_its_side_wherever_it_stands(
    questions: list[str], tenths: int, rng: random.Random
) -> None:
    held_out = part("last", tenths / 1000, "hash")
    before = {row.fields["question"] for row in taken(rows(questions), held_out)}
    more = [*questions, "another"]
    rng.shuffle(more)
    after = {row.fields["question"] for row in taken(rows(more), held_out)}
    assert after - {"another"} == before


def test_parts_by_order() -> None:
    data = rows(list("abcdefghij"))
    asked = [row.fields["question"] for row in taken(data, part("first", 0.25))]
    assert asked == ["a", "b", "c"]  # the nearest, and the later of two
    assert len(taken(data, part("last", 0.75))) == 7
    assert taken(data, part("first", 1.0)) == data


def test_by_hash_the_share_is_about_right_and_white_space_does_not_count() -> None:
    share = len(taken(rows([f"question {n}" for n in range(4_000)]), part("first", 0.9, "hash")))
    assert 3_500 < share < 3_700
    (one,), (other,) = rows(["1  + 1 ="]), rows([" 1 + 1 =\n"])
    for tenths in range(1, 10):
        split = part("first", tenths / 10, "hash")
        assert len(taken([one], split)) == len(taken([other], split))


def test_questions_that_are_no_text_and_rows_without_one_have_a_place_too() -> None:
    data = rows([[{"role": "user", "content": "hi"}], 7, None])
    data += [DataRow({"prompt": "x"}, FilePlace("x.jsonl", 4))]
    first, last = (taken(data, part(side, 0.5, "hash")) for side in ("first", "last"))
    assert len(first) + len(last) == 4


def test_parts_of_a_named_split() -> None:
    data = [*rows(list("abcd"), split="test"), *rows(list("efgh"))]
    asked = [row.fields["question"] for row in taken(data, part("last", 0.5, of="test"))]
    assert asked == ["c", "d"]
    with pytest.raises(NoSplitError, match=r"has no split `dev`; it has `test`, `train`$"):
        taken(data, part("first", 0.5, of="dev"))


def test_an_empty_part_is_an_error() -> None:
    message = r"`last\(10%\)` of `train` of x\.jsonl is empty: there are 2 rows in all"
    with pytest.raises(DataError, match=message):
        rows_of_split("x.jsonl", rows(["a", "b"]), part("last", 0.1), "question")


def test_how_a_split_is_named() -> None:
    assert said("test") == "`test`"
    assert said(part("first", 0.9)) == "`first(90%)` of `train`"
