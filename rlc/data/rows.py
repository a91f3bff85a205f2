"""Rows of data: the records of a file, or of a folder of Arrow files, and the types of fields."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from typing import IO, Any, Literal

from rlc.data.errors import DataError, FilePlace, PackageMissingError
from rlc.plan import FIELD, SAVED_SET, SAVED_SPLITS, is_saved_set
from rlc.records import evolve, frozen


@frozen
class DataRow:
    """One row of a file, by the names of its fields, and its place."""

    fields: Mapping[str, Any]
    place: FilePlace


def rows_of(path: str) -> Iterator[DataRow]:
    """Yield the rows of a file as they are read, without a byte order mark. Raise DataError, with
    the place, if it cannot be read, has no rows, or has a row without named fields."""
    reader = _READERS.get(os.path.splitext(path)[1].lower())
    reader = saved_rows if is_saved_set(path) else reader
    if reader is None:
        raise DataError(f"{path} is not a kind of data file that is read: {', '.join(_READERS)}")
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


def _said(error: json.JSONDecodeError) -> str:
    return error.msg.removesuffix(" at").removesuffix(" starting")  # the place is said apart


def _json_lines(path: str) -> Found:
    row = 0
    with open(path, encoding="utf-8-sig") as file:
        for line, text in enumerate(file, start=1):
            if text.strip():
                row += 1
                place = FilePlace(path, row, line)
                try:
                    yield place, json.loads(text.rstrip("\r\n"))
                except json.JSONDecodeError as error:
                    place = evolve(place, column=error.pos + 1)
                    raise DataError(f"the line is not JSON: {_said(error)}", place=place) from error
                except RecursionError as error:
                    raise DataError("the line is nested too deeply", place=place) from error


def _json_list(path: str) -> Found:
    with open(path, encoding="utf-8-sig") as file:
        text = file.read()
    decode, at, line = json.JSONDecoder().raw_decode, 0, 1

    def skipped(start: int) -> int:
        while start < len(text) and text[start] in " \t\n\r":
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

    with open(path, encoding="utf-8-sig", newline="") as file:
        reader, row = csv.DictReader(file, strict=True), 0
        try:
            for row, fields in enumerate(reader, start=1):
                inside = sum(
                    value.count("\n") for value in fields.values() if isinstance(value, str)
                )
                place = FilePlace(path, row, reader.line_num - inside)
                if None in fields:
                    columns = len(reader.fieldnames or ())
                    what = f"the row has more values than the {columns} columns"
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

    def batches(file: IO[bytes]) -> Any:
        return parquet.ParquetFile(file).iter_batches()

    return _rows_of_batches(path, "Parquet", batches, arrow.ArrowException)


def _arrow(path: str) -> Found:
    try:
        arrow, ipc = map(importlib.import_module, ("pyarrow", "pyarrow.ipc"))
    except ImportError as error:
        raise PackageMissingError(f"{path} needs pyarrow: pip install pyarrow") from error

    def batches(file: IO[bytes]) -> Any:
        indexed = file.read(6) == b"ARROW1"
        file.seek(0)
        if not indexed:
            return ipc.open_stream(file)
        whole = ipc.open_file(file)
        return map(whole.get_batch, range(whole.num_record_batches))

    return _rows_of_batches(path, "Arrow", batches, arrow.ArrowException)


def _rows_of_batches(
    path: str, kind: str, batches: Callable[[IO[bytes]], Any], failure: type[Exception]
) -> Found:
    row = 0
    with open(path, "rb") as file:
        try:
            for batch in batches(file):
                for fields in batch.to_pylist():
                    row += 1
                    yield FilePlace(path, row), fields
        except failure as error:
            first = str(error).splitlines()[0]
            raise DataError(f"{path} cannot be read as {kind}: {first}") from error


_READERS: dict[str, Callable[[str], Found]] = {
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".csv": _csv,
    ".parquet": _parquet,
    ".arrow": _arrow,
}


def parts_of(path: str) -> list[str]:
    """Return a file and those that it names. Raise DataError for one that cannot be read."""
    if os.path.basename(path) == SAVED_SPLITS:
        return [path, *(part for _, state in _splits(path) for part in parts_of(state))]
    return [path, *_arrow_files(path)] if os.path.basename(path) == SAVED_SET else [path]


def saved_rows(path: str) -> Found:
    """Yield the rows of a folder that ``save_to_disk`` wrote; those of several splits have its name
    as the field ``split``. Raise DataError if they cannot be read."""
    if os.path.basename(path) == SAVED_SPLITS:
        for split, state in _splits(path):
            yield from ((place, {FIELD: split, **row}) for place, row in saved_rows(state))
        return
    row = 0
    for file in _arrow_files(path):
        for _, fields in _arrow(file):
            row += 1
            yield FilePlace(path, row), fields


def _splits(path: str) -> list[tuple[str, str]]:
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
        what = f"{path} holds a selection of rows; load it with datasets, and save it anew"
        raise DataError(what)
    return [os.path.join(os.path.dirname(path), name) for name in names]


def _json(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise DataError(f"{path} is no JSON: {error}") from error


# What is to be done with the value of a field: it is asked, compared with, or trained on.
Holds = Literal["asked", "prompt", "answer", "text", "messages", "id", "shown", "texts"]
_HOLDS: Mapping[Holds, tuple[tuple[type, ...], str]] = {
    "asked": ((str, list), "text or a list of messages"),
    "prompt": ((str, list), "text or a list of messages"),
    "answer": ((str, int, float, bool, list), "text, a number or a list"),
    "text": ((str,), "text"),
    "messages": ((list, str), "a list of messages"),  # in a cell of a CSV file they are JSON text
    "id": ((str, int, float), "text or a number"),
    "shown": ((str, int, float), "text or a number"),
    "texts": ((str, list), "text or a list of texts"),
}
_NOUNS: Mapping[type, str] = {
    str: "text",
    bool: "a truth value",
    int: "a number",
    float: "a number",
    list: "a list",
    dict: "a record",
}


class FieldError(DataError):
    """A ``field`` of a row that cannot be used, and its ``fault``."""

    def __init__(self, what: str, field: str, fault: Literal["missing", "empty", "type"]) -> None:
        super().__init__(what)
        self.field = field
        self.fault = fault


def field_fault(row: Mapping[str, Any], name: str, holds: Holds) -> FieldError | None:
    """Return what is wrong with a field of a row; None if it can be used."""
    if name not in row:
        there = ", ".join(f"`{field}`" for field in row) or "none"
        return FieldError(f"the row has no field `{name}`; it has {there}", name, "missing")
    value = row[name]
    if value is None or value in ("", []) or (isinstance(value, str) and not value.strip()):
        return FieldError(f"the field `{name}` is empty", name, "empty")
    bare = isinstance(value, list) and not all(isinstance(item, Mapping) for item in value)
    unfit = bare and holds in ("asked", "prompt")
    if isinstance(value, list) and holds == "texts":
        unfit = not all(isinstance(item, str) for item in value)
    types, needed = _HOLDS[holds]
    if not isinstance(value, types) or unfit:
        found = _NOUNS.get(type(value), f"a {type(value).__name__}")
        what = f"the field `{name}` holds {found}, and not {needed}"
        return FieldError(what, name, "type")
    return None


def first_of(row: Mapping[str, Any], usual: Sequence[str], name: str | None) -> Any:
    """Return the value under a name, or else under the first of the usual ones that has any."""
    return next((row[n] for n in ((name,) if name else usual) if row.get(n) is not None), None)


def why_absent(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return why a row has no value under one of several names."""
    if (empty := next((name for name in names if name in row), None)) is not None:
        return f"the field `{empty}` is empty"
    *others, last = (f"`{name}`" for name in names)
    wanted = f"{', '.join(others)} or {last}" if others else last
    return f"there is no field {wanted}; the row has: {', '.join(map(str, row))}"


def require_field(row: Mapping[str, Any], name: str, holds: Holds) -> None:
    if (fault := field_fault(row, name, holds)) is not None:
        raise fault
