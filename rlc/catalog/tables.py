"""Tables of models that the user has read anew, kept in their configuration; and how old prices
may be."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rlc.errors import Error

STALE_DAYS = 90
PRICE_KINDS = ("prefill", "cached", "sample", "train")
_COLUMNS = {kind: kind for kind in ("context", *PRICE_KINDS)} | {"cached": "cached_prefill"}
_FILE, _DAY = "models.json", "%Y-%m-%d"


class TableError(Error, ValueError):
    """A table of models that cannot be read or kept; the message says why."""

    exit_status = 2


def config_folder() -> str:
    """Return the folder of the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "rlc")


def today() -> str:
    """Return the day of today, or that of ``RLC_TODAY``, for what has to be the same every day."""
    return os.environ.get("RLC_TODAY") or time.strftime(_DAY)


def is_stale(as_of: str | None) -> bool:
    """Return whether prices of a day are too old to be relied on."""
    from datetime import date, timedelta  # checks need none

    oldest = date.fromisoformat(today()) - timedelta(STALE_DAYS)
    return as_of is not None and as_of < oldest.isoformat()


def kept_tables() -> dict[str, dict[str, Any]]:
    """Return the tables that were read anew by source, the oldest first: each has its day ``as_of``
    and ``models``. Raise TableError if they cannot be read."""
    path = os.path.join(config_folder(), _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            tables = json.load(file)
        by_day = sorted(tables.items(), key=lambda item: time.strptime(item[1]["as_of"], _DAY))
        return {source: {**table, "models": {**table["models"]}} for source, table in by_day}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{path} is not what `rlc models --refresh` wrote: {error}"
        raise TableError(message, "`rlc models --forget` removes it") from error


def keep_table(source: str, models: Mapping[str, Mapping[str, Any]]) -> str:
    """Keep a table of today in place of an earlier one of its source; return the file. Raise
    TableError if that cannot be written."""
    tables = kept_tables() | {source: {"as_of": today(), "models": dict(models)}}
    path = os.path.join(config_folder(), _FILE)
    with _written(path):
        os.makedirs(config_folder(), exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(tables, file, indent=1)
        os.replace(f"{path}.new", path)
    return path


def forget_tables() -> bool:
    """Remove all tables that were read anew; return whether there were any."""
    path = os.path.join(config_folder(), _FILE)
    with _written(path):
        there = os.path.exists(path)
        if there:
            os.remove(path)
    return there


@contextmanager
def _written(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error


def published_models(text: str) -> dict[str, dict[str, Any]]:
    """Return the models of a table as Tinker publishes it: a JSON list of records with
    ``tinker_id``, ``context`` ("64K") and prices ("$0.195"). Raise TableError if it is not one."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise TableError(f"it is not JSON: {error}") from error
    found = {}
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and isinstance(name := row.get("tinker_id"), str):
            found[name] = {kind: _number(row.get(column)) for kind, column in _COLUMNS.items()}
    if not found:
        raise TableError("it is no list of models with a `tinker_id`")
    return found


def _number(text: Any) -> float | None:
    """Return ``$0.195`` or ``64K`` as a number; None for all else, such as "—"."""
    match = re.fullmatch(r"\$?(\d+(?:\.\d+)?)([KM]?)", str(text).strip())
    return float(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]] if match else None
