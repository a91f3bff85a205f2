"""Rows of data: the records of a .jsonl, .csv or .parquet file, in order."""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rlc.envs.base import EnvError


def read_rows(path: str) -> list[dict[str, Any]]:
    """All rows of a file. Raise EnvError if it cannot be read, has no rows, or has a row without
    named fields."""
    file = Path(path)
    try:
        rows = list(_READERS[file.suffix](file))
    except OSError as error:
        raise EnvError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise EnvError(f"{path} cannot be read: {error}") from error
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise EnvError(f"row {number} of {path} has no named fields")
    if not rows:
        raise EnvError(f"{path} has no rows")
    return rows


def _json_lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                try:
                    yield json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise ValueError(f"line {number} is not JSON: {error}") from error


def _csv(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8", newline="") as file:
        try:
            yield from csv.DictReader(file, strict=True)
        except csv.Error as error:
            raise ValueError(str(error)) from error


def _parquet(path: Path) -> Iterator[Any]:
    try:
        arrow, parquet = map(importlib.import_module, ("pyarrow", "pyarrow.parquet"))
    except ImportError as error:
        raise EnvError("a .parquet file needs pyarrow: pip install pyarrow") from error
    try:
        with path.open("rb") as file:
            yield from parquet.read_table(file).to_pylist()
    except arrow.ArrowException as error:
        raise ValueError(str(error).splitlines()[0]) from error


_READERS: dict[str, Callable[[Path], Iterator[Any]]] = {
    ".jsonl": _json_lines,
    ".csv": _csv,
    ".parquet": _parquet,
}
