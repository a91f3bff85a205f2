"""Rows of data: the records of a file, or of a folder of Arrow files, read one by one."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import IO, Any

from rlc.data.errors import DataError, FilePlace, PackageMissingError
from rlc.plan import FIELD, SAVED_SET, SAVED_SPLITS, is_saved_set
from rlc.records import frozen

_WHITE = " \t\n\r"


@frozen
class DataRow:
    """One row of a file, by the names of its fields, and where it stands."""

    fields: Mapping[str, Any]
    place: FilePlace


def rows_of(path: str) -> Iterator[DataRow]:
    """The rows of a file, each read when it is asked for. A byte order mark is skipped.

    Raise DataError, with the place, if the file cannot be read, has no rows, or has a row without
    named fields.
    """
    reader = _READERS.get(os.path.splitext(path)[1].lower())
    reader = _arrow if is_saved_set(path) else reader
    if reader is None:
        raise DataError(f"{path} is none of the kinds of data: {', '.join(_READERS)}")
    there = False
    try:
        for place, fields in reader(path):
            if not isinstance(fields, dict):
                listed = isinstance(fields, list) and path.lower().endswith(".jsonl")
                hint = "a file that is one list is named .json" if listed else None
                raise DataError("the row has no named fields", hint, place)
            there = True
            yield DataRow(fields, place)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8: {error.reason} at byte {error.start:,}") from error
    if not there:
        raise DataError(f"{path} has no rows")


Found = Iterator[tuple[FilePlace, Any]]


def _text(path: str, newline: str | None = None) -> IO[str]:
    return open(path, encoding="utf-8-sig", newline=newline)


def _said(error: json.JSONDecodeError) -> str:
    return error.msg.removesuffix(" at").removesuffix(" starting")  # the place is said apart


def _json_lines(path: str) -> Found:
    with _text(path) as file:
        row = 0
        for line, text in enumerate(file, start=1):
            if text.strip():
                row += 1
                try:
                    yield FilePlace(path, row, line), json.loads(text.rstrip("\r\n"))
                except json.JSONDecodeError as error:
                    place = FilePlace(path, row, line, error.pos + 1)
                    raise DataError(f"the line is not JSON: {_said(error)}", place=place) from error
                except RecursionError as error:
                    place = FilePlace(path, row, line)
                    raise DataError("the line is nested too deeply", place=place) from error


def _json_list(path: str) -> Found:
    """The objects of a list, each with the line that it starts in."""
    with _text(path) as file:
        text = file.read()
    decode, at, line = json.JSONDecoder().raw_decode, 0, 1

    def skipped(start: int) -> int:
        while start < len(text) and text[start] in _WHITE:
            start += 1
        return start

    def wrong(what: str, at: int, row: int, hint: str | None = None) -> DataError:
        column = at - text.rfind("\n", 0, at)
        return DataError(what, hint, FilePlace(path, row, text.count("\n", 0, at) + 1, column))

    at = skipped(0)
    if at == len(text):
        return
    if text[at] != "[":
        hint = "a file with an object on each line is named .jsonl"
        raise wrong("a .json file is a list of objects: it starts with `[`", at, 1, hint)
    at, before = skipped(at + 1), 0
    if text[at : at + 1] == "]":
        return
    for row in count(1):
        line += text.count("\n", before, at)
        before = at
        try:
            value, at = decode(text, at)
        except json.JSONDecodeError as error:
            raise wrong(f"this is not JSON: {_said(error)}", error.pos, row) from error
        except RecursionError as error:
            raise wrong("the object is nested too deeply", at, row) from error
        yield FilePlace(path, row, line), value
        at = skipped(at)
        if text[at : at + 1] == "]":
            break
        if text[at : at + 1] != ",":
            raise wrong("after an object there is `,`, or `]` at the end of the list", at, row)
        at = skipped(at + 1)
    if (after := skipped(at + 1)) < len(text):
        raise wrong("nothing stands after the list", after, row)


def _csv(path: str) -> Found:
    import csv

    with _text(path, newline="") as file:
        reader, row = csv.DictReader(file, strict=True), 0
        try:
            for row, fields in enumerate(reader, start=1):
                inside = sum(
                    value.count("\n") for value in fields.values() if isinstance(value, str)
                )
                place = FilePlace(path, row, reader.line_num - inside)
                if None in fields:
                    what = (
                        f"the row has more values than the {len(reader.fieldnames or ())} columns"
                    )
                    raise DataError(what, place=place)
                yield place, fields
        except csv.Error as error:
            place = FilePlace(path, row + 1, max(reader.reader.line_num, 1))
            raise DataError(f"this is not CSV: {error}", place=place) from error


def _parquet(path: str) -> Found:
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ImportError as error:
        raise DataError("a .parquet file needs pyarrow: pip install pyarrow") from error
    try:
        with open(path, "rb") as file:
            row = 0
            for batch in parquet.ParquetFile(file).iter_batches():
                for fields in batch.to_pylist():
                    row += 1
                    yield FilePlace(path, row), fields
    except arrow.ArrowException as error:
        first = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as Parquet: {first}") from error


def _arrow(path: str) -> Found:

    return saved_rows(path) if is_saved_set(path) else arrow_rows(path)


_READERS: dict[str, Callable[[str], Found]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


MISSING = "needs pyarrow: pip install pyarrow"


def parts_of(path: str) -> list[str]:
    """The files that a data set is in whose name a recipe has: itself, and those that it names.
    Raise DataError for one that cannot be read."""
    if os.path.basename(path) == SAVED_SPLITS:
        return [path, *(part for _, state in _splits(path) for part in parts_of(state))]
    return [path, *_arrow_files(path)] if os.path.basename(path) == SAVED_SET else [path]


def saved_rows(path: str) -> Iterator[tuple[FilePlace, Any]]:
    """The rows of a folder that ``save_to_disk`` wrote; those of several splits have the name of
    theirs as the field ``split``. Raise DataError if they cannot be read."""
    if os.path.basename(path) == SAVED_SPLITS:
        for split, state in _splits(path):
            yield from ((place, {FIELD: split, **row}) for place, row in saved_rows(state))
        return
    row = 0
    for file in _arrow_files(path):
        for _, fields in arrow_rows(file):
            row += 1
            yield FilePlace(path, row), fields


def arrow_rows(path: str) -> Iterator[tuple[FilePlace, Any]]:
    """The rows of one Arrow file, a stream or a file with an index. Raise DataError if it cannot be
    read."""
    try:
        arrow, ipc = map(importlib.import_module, ("pyarrow", "pyarrow.ipc"))
    except ImportError as error:
        raise PackageMissingError(f"{path} {MISSING}") from error
    row = 0
    with open(path, "rb") as file:
        try:
            indexed = file.read(6) == b"ARROW1"
            file.seek(0)
            if indexed:
                whole = ipc.open_file(file)
                batches = map(whole.get_batch, range(whole.num_record_batches))
            else:
                batches = iter(ipc.open_stream(file))
            for batch in batches:
                for fields in batch.to_pylist():
                    row += 1
                    yield FilePlace(path, row), fields
        except arrow.ArrowException as error:
            first = str(error).splitlines()[0]
            raise DataError(f"{path} cannot be read as Arrow: {first}") from error


def _splits(path: str) -> list[tuple[str, str]]:
    """The splits of a folder, each with the file that says what it holds."""
    folder = os.path.dirname(path)
    try:
        names = [str(name) for name in _json(path)["splits"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} does not say which `splits` there are") from error
    return [(name, os.path.join(folder, name, SAVED_SET)) for name in names]


def _arrow_files(path: str) -> list[str]:
    written = _json(path)
    try:
        names = [str(file["filename"]) for file in written["_data_files"]]
        chosen = written.get("_indices_data_files")
    except (AttributeError, KeyError, TypeError) as error:
        hint = "`save_to_disk` of the package datasets writes one beside its .arrow files"
        raise DataError(f"{path} does not name the Arrow files of a data set", hint) from error
    if chosen:  # as datasets wrote it before 2.0
        raise DataError(
            f"{path} holds a selection of rows; load it with datasets, and save it anew"
        )
    return [os.path.join(os.path.dirname(path), name) for name in names]


def _json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from error
