"""Arrow files, and the folders of them that ``save_to_disk`` of the package datasets writes.

Such a folder is known by the file in it that says what it holds: ``state.json`` of a data set, or
``dataset_dict.json`` of several, each of which is a split.
"""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator
from typing import Any

from rlc.data.errors import DataError, FilePlace, PackageMissingError
from rlc.plan.paths import SAVED_SET, SAVED_SPLITS
from rlc.plan.splits import FIELD

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
