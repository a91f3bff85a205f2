"""Files as `rlc check` reads them: once, within a limit of time, and counted to the end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rlc.data.reading import Reader
from rlc.data.rows import rows_of
from rlc.data.splits import rows_of_split

HALF = {"part": "first", "share": 0.5, "by": "order", "of": "train"}


@pytest.fixture
def path(tmp_path: Path) -> str:
    data = [{"question": str(n), "split": "train" if n < 7 else "test"} for n in range(10)]
    (tmp_path / "x.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
    return str(tmp_path / "x.jsonl")


def test_a_file_is_read_once(path: str) -> None:
    reader = Reader()
    first = reader.read(path)
    Path(path).unlink()
    assert reader.read(path) is first
    assert (len(first.rows), first.whole, first.error) == (10, True, None)
    assert reader.count(path, "train", "question") == 7


def test_what_was_read_before_a_mistake_is_kept(path: str) -> None:
    with open(path, "a", encoding="utf-8") as file:
        file.write("{\n")
    read = Reader().read(path)
    assert (len(read.rows), read.whole) == (10, False)
    assert read.error is not None
    assert read.error.place is not None
    assert read.error.place.line == 11
    assert Reader().count(path, "train", "question") is None


def test_without_time_there_is_one_row_but_all_are_counted(path: str) -> None:
    reader = Reader(seconds=0.0)
    read = reader.read(path)
    assert (len(read.rows), read.whole, read.error) == (1, False, None)
    assert reader.count(path, "test", "question") == 3


def test_the_time_is_for_all_files_together(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1_000))
    monkeypatch.setattr("rlc.data.reading.time.perf_counter", lambda: float(next(now)))
    reader = Reader(seconds=5.0)
    assert len(reader.read(path).rows) == 6
    assert reader.seconds == 0.0
    assert len(reader.read(f"{path}x").rows) == 0
    assert len(Reader(seconds=None).read(path).rows) == 10


@pytest.mark.parametrize(
    ("split", "count"), [("train", 7), ("test", 3), ("dev", None), (HALF, 4), (None, 10)]
)
def test_rows_of_splits_are_counted(path: str, split: Any, count: int | None) -> None:
    assert Reader().count(path, split, "question") == count


def test_parts_by_hash_are_counted_as_they_are_taken(path: str) -> None:
    split = HALF | {"by": "hash"}
    taken = rows_of_split(path, rows_of(path), split, "question")
    assert Reader().count(path, split, "question") == len(taken)


def test_importing_what_reads_a_file_is_no_reading_time(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow import of pyarrow, say, would leave one row of a file that has mistakes below it."""
    clock = iter([100.0, 100.0] + [100.5] * 20)
    monkeypatch.setattr("rlc.data.reading.time.perf_counter", lambda: next(clock))
    reader = Reader(seconds=1.0)
    assert len(reader.read(path).rows) == 10
    assert reader.seconds == 0.5
    assert reader.unfinished() == []


def test_what_the_time_was_too_short_for_is_known(path: str) -> None:
    reader = Reader(seconds=0.0)
    read = reader.read(path)
    assert reader.unfinished() == [(path, len(read.rows))]
