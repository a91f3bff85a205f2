"""Rows of files: each with its place, for every kind of file, and what is said of bad ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.errors import DataError, FilePlace
from rlc.data.rows import rows_of

TWO = [{"a": "one", "b": "1"}, {"a": "two", "b": "2"}]
BOM = "\ufeff"


@pytest.mark.parametrize(
    ("name", "text", "lines"),
    [
        ("x.jsonl", '{"a": "one", "b": "1"}\n\n{"a": "two", "b": "2"}\n', [1, 3]),
        ("x.json", '[\n  {"a": "one",\n   "b": "1"},\n  {"a": "two", "b": "2"}]\n', [2, 4]),
        ("x.csv", "a,b\r\none,1\r\n\r\ntwo,2\r\n", [2, 4]),
    ],
)
@pytest.mark.parametrize("mark", ["", BOM])
def test_each_row_knows_its_line(
    tmp_path: Path, name: str, text: str, lines: list[int], mark: str
) -> None:
    path = str(tmp_path / name)
    Path(path).write_bytes((mark + text).encode())
    rows = list(rows_of(path))
    assert [row.fields for row in rows] == TWO
    assert [row.place for row in rows] == [
        FilePlace(path, n, line) for n, line in enumerate(lines, start=1)
    ]
    assert str(rows[1].place) == f"{path}:{lines[1]}"


def test_a_value_of_a_csv_file_may_span_lines(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('"a\nname",b\n"one\nmore",1\ntwo,2\n')
    rows = list(rows_of(str(tmp_path / "x.csv")))
    assert rows[0].fields == {"a\nname": "one\nmore", "b": "1"}
    assert [row.place.line for row in rows] == [3, 5]


def test_rows_of_parquet_have_numbers(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = str(tmp_path / "x.parquet")
    parquet.write_table(arrow.Table.from_pylist(TWO), path)
    rows = list(rows_of(path))
    assert [row.fields for row in rows] == TWO
    assert str(rows[1].place) == f"{path}, row 2"


def test_rows_are_read_as_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n{"a": 2}\nnot JSON\n')
    rows: Iterator[Any] = rows_of(str(tmp_path / "x.jsonl"))
    assert [row.fields["a"] for row in islice(rows, 2)] == [1, 2]
    with pytest.raises(DataError, match="not JSON"):
        next(rows)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.jsonl", '{"a": 1}\n{]\n', r"x\.jsonl:2:2: the line is not JSON: Expecting property"),
        ("x.jsonl", '{"a": 1}\n[1]\n', r"x\.jsonl:2: the row has no named fields"),
        ("x.jsonl", "[" * 100_000, r"x\.jsonl:1: the line is nested too deeply"),
        ("x.jsonl", b"\xff\xfe", r"x\.jsonl is not UTF-8: invalid start byte at byte 0"),
        ("x.jsonl", "\n \n", r"x\.jsonl has no rows"),
        ("x.json", '{"a": 1}', r"x\.json:1:1: a \.json file is a list of objects"),
        ("x.json", '[{"a": 1},\n {"a": }]', r"x\.json:2:8: this is not JSON: Expecting value"),
        ("x.json", '[{"a": 1}\n {"a": 1}]', r"x\.json:2:2: after an object there is `,`"),
        ("x.json", '[{"a": 1}', r"x\.json:1:10: after an object there is `,`"),
        ("x.json", '[{"a": 1}] 7', r"x\.json:1:12: nothing stands after the list"),
        ("x.json", '[{"a": 1}, 7]', r"x\.json:1: the row has no named fields"),
        ("x.json", "[" * 100_000, r"x\.json:1:2: the object is nested too deeply"),
        ("x.json", " [ ] ", r"x\.json has no rows"),
        ("x.json", "", r"x\.json has no rows"),
        ("x.csv", 'a,b\n1,2\n"x,1', r"x\.csv:3: this is not CSV: unexpected end of data"),
        ("x.csv", "a,b\n1,2,3\n", r"x\.csv:2: the row has more values than the 2 columns"),
        ("x.csv", "a,b\n", r"x\.csv has no rows"),
        ("x.parquet", "no such thing", r"x\.parquet cannot be read as Parquet"),
        ("x.txt", "a", r"x\.txt is not a kind of data file that is read: \.jsonl, \.json"),
    ],
)
def test_files_that_cannot_be_read(
    tmp_path: Path, name: str, text: str | bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(DataError, match=message):
        list(rows_of(str(tmp_path / name)))


def test_a_file_that_is_missing_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*x\.jsonl: No such file"):
        list(rows_of(str(tmp_path / "x.jsonl")))
    (tmp_path / "y.csv").mkdir()
    with pytest.raises(DataError, match=r"cannot read .*y\.csv: Is a directory"):
        list(rows_of(str(tmp_path / "y.csv")))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ROWS = st.lists(st.dictionaries(st.text(), JSON, min_size=1, max_size=3), min_size=1, max_size=6)


@given(ROWS, st.sampled_from([None, 0, 2]))
def test_a_json_file_gives_what_json_gives(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("rows") / "x.json"
    text = json.dumps(rows, indent=indent)
    path.write_text(text)
    found = list(rows_of(str(path)))
    assert [row.fields for row in found] == rows
    for row in found:
        assert row.place.line is not None
        assert "{" in text.split("\n")[row.place.line - 1]


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [("x.jsonl", '[{"a": 1}, {"a": 2}]\n', ".json"), ("x.json", '{"a": 1}\n{"a": 2}\n', ".jsonl")],
)
def test_a_file_of_another_kind_than_its_name_says_which(
    tmp_path: Path, name: str, text: str, kind: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as raised:
        list(rows_of(str(tmp_path / name)))
    assert raised.value.hint is not None
    assert raised.value.hint.endswith(f" is named {kind}")
    (tmp_path / f"renamed{kind}").write_text(text)
    renamed = rows_of(str(tmp_path / f"renamed{kind}"))
    assert [row.fields for row in renamed] == [{"a": 1}, {"a": 2}]
