"""Arrow files, and the folders that ``save_to_disk`` writes: their rows, digest and faults."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rlc.data.digests import changed_files, data_files
from rlc.data.errors import DataError
from rlc.data.problems import rows_in
from rlc.data.rows import rows_of
from rlc.plan.paths import is_saved_set

ROWS = [{"prompt": f"Say {n}.", "answer": n, "parts": [{"text": "a"}]} for n in range(5)]


@pytest.fixture(scope="module")
def pyarrow() -> Any:
    pytest.importorskip("pyarrow")
    return pytest.importorskip("pyarrow.ipc")


def write(ipc: Any, path: Path, rows: Sequence[Any], indexed: bool = False) -> None:
    """An Arrow file, with batches of two rows."""
    table = importlib.import_module("pyarrow").Table.from_pylist(list(rows))
    made = (ipc.new_file if indexed else ipc.new_stream)(str(path), table.schema)
    with made as writer:
        writer.write_table(table, max_chunksize=2)


def saved(ipc: Any, folder: Path, *parts: Sequence[Any]) -> str:
    """A folder as ``save_to_disk`` writes it, of several files; return what names it."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{number:05}-of-{len(parts):05}.arrow" for number in range(len(parts))]
    for name, rows in zip(names, parts, strict=True):
        write(ipc, folder / name, rows)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f"}
    (folder / "state.json").write_text(json.dumps(state))
    return str(folder / "state.json")


@pytest.mark.parametrize("indexed", [False, True])
def test_a_file_is_read_in_both_of_its_forms(pyarrow: Any, tmp_path: Path, indexed: bool) -> None:
    write(pyarrow, tmp_path / "rows.arrow", ROWS, indexed)
    rows = [*rows_of(str(tmp_path / "rows.arrow"))]
    assert [row.fields for row in rows] == ROWS
    assert str(rows[-1].place) == f"{tmp_path / 'rows.arrow'}, row 5"


def test_a_folder_is_its_files_one_after_the_other(pyarrow: Any, tmp_path: Path) -> None:
    path = saved(pyarrow, tmp_path, ROWS[:3], ROWS[3:])
    assert is_saved_set(path)
    rows = [*rows_of(path)]
    assert [row.fields for row in rows] == ROWS
    assert [row.place.row for row in rows] == [1, 2, 3, 4, 5]


def test_several_data_sets_are_splits(pyarrow: Any, tmp_path: Path) -> None:
    saved(pyarrow, tmp_path / "train", ROWS[:3])
    saved(pyarrow, tmp_path / "test", ROWS[3:])
    path = tmp_path / "dataset_dict.json"
    path.write_text(json.dumps({"splits": ["train", "test"]}))
    assert [row.fields["answer"] for row in rows_in(str(path), "test", "prompt")] == [3, 4]
    assert [row.fields["answer"] for row in rows_in(str(path), "train", "prompt")] == [0, 1, 2]


def test_the_package_itself_writes_what_is_read(tmp_path: Path) -> None:
    datasets: Any = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(ROWS)
    datasets.DatasetDict({"train": made, "test": made.select([1])}).save_to_disk(tmp_path)
    path = str(tmp_path / "dataset_dict.json")
    assert [row.fields for row in rows_in(path, "train", "prompt")] == [
        {"split": "train", **row} for row in ROWS
    ]
    assert len(rows_in(path, "test", "prompt")) == 1


def test_the_digest_is_that_of_all_of_it(pyarrow: Any, tmp_path: Path) -> None:
    recipe = str(tmp_path / "r.rl")
    saved(pyarrow, tmp_path / "set", ROWS[:3], ROWS[3:])
    before = data_files(["set/state.json"], recipe)
    assert before[0].size == sum(file.stat().st_size for file in (tmp_path / "set").iterdir())
    assert [*changed_files(before, recipe)] == []
    write(pyarrow, tmp_path / "set" / "data-00001-of-00002.arrow", ROWS[:2])
    assert "has changed" in next(iter(changed_files(before, recipe)))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("{", "is no JSON"),
        ("[]", "does not name the Arrow files"),
        ('{"splits": []}', "does not name the Arrow files"),
        ('{"_data_files": [{"filename": "gone.arrow"}]}', "cannot read .*: No such file"),
        ('{"_data_files": [{"filename": "bad.arrow"}]}', "cannot be read as Arrow"),
        ('{"_data_files": []}', "has no rows"),
        ('{"_data_files": [], "_indices_data_files": [{"filename": "i"}]}', "a selection of rows"),
    ],
)
def test_what_cannot_be_read_says_why(pyarrow: Any, tmp_path: Path, state: str, says: str) -> None:
    write(pyarrow, tmp_path / "whole.arrow", ROWS)
    (tmp_path / "bad.arrow").write_bytes((tmp_path / "whole.arrow").read_bytes()[:-200])
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(DataError, match=says):
        [*rows_of(str(tmp_path / "state.json"))]
