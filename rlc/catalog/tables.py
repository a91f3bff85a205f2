"""Tables of models that the user has read anew, kept in their configuration; and how old prices
may be."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from rlc.errors import Error

STALE_DAYS = 90
PRICE_KINDS = ("prefill", "cached", "sample", "train")
_FILE = "models.json"
_THOUSANDS = {"": 1, "K": 1024, "M": 1024**2}


class TableError(Error, ValueError):
    """A table of models that cannot be read or kept; the message says why."""

    exit_status = 2


def config_folder() -> str:
    """Return the folder of the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "rlc")


def today() -> date:
    """Return the day of today, or that of ``RLC_TODAY``, for what has to be the same every day."""
    given = os.environ.get("RLC_TODAY")
    return date.fromisoformat(given) if given else date.today()


def is_stale(as_of: str | None) -> bool:
    """Return whether prices of a day are too old to be relied on."""
    return as_of is not None and (today() - date.fromisoformat(as_of)).days > STALE_DAYS


def kept_tables() -> dict[str, dict[str, Any]]:
    """Return the tables that were read anew by source, the oldest first: each has its day ``as_of``
    and ``models``. Raise TableError if they cannot be read."""
    path = os.path.join(config_folder(), _FILE)
    try:
        with open(path, encoding="utf-8") as file:
            tables = json.load(file)
        by_day = sorted(tables.items(), key=lambda item: str(date.fromisoformat(item[1]["as_of"])))
        return {source: {**table, "models": {**table["models"]}} for source, table in by_day}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        message = f"{path} is not what `rlc models --refresh` wrote: {error}"
        raise TableError(message, "`rlc models --forget` removes it") from error


def keep_table(source: str, models: Mapping[str, Mapping[str, Any]]) -> str:
    """Keep a table of today in place of an earlier one of its source; return the file. Raise
    TableError if that cannot be written."""
    tables = kept_tables() | {source: {"as_of": today().isoformat(), "models": dict(models)}}
    path = os.path.join(config_folder(), _FILE)
    try:
        os.makedirs(config_folder(), exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(tables, file, indent=1)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise TableError(f"cannot write {path}: {error.strerror}") from error
    return path


def forget_tables() -> bool:
    """Remove all tables that were read anew; return whether there were any."""
    path = os.path.join(config_folder(), _FILE)
    try:
        os.remove(path)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise TableError(f"cannot remove {path}: {error.strerror}") from error
    return True


def published_models(text: str) -> dict[str, dict[str, Any]]:
    """Return the models of a table as Tinker publishes it: a JSON list of records with
    ``tinker_id``, ``context`` ("64K") and prices ("$0.195"). Raise TableError if it is not one."""
    try:
        rows = json.loads(text)
    except ValueError as error:
        raise TableError(f"it is not JSON: {error}") from error
    if not (isinstance(rows, list) and all(isinstance(row, dict) for row in rows)):
        raise TableError("it is no list of models")
    named = {row["tinker_id"]: row for row in rows if isinstance(row.get("tinker_id"), str)}
    if not named:
        raise TableError("none of its models has a `tinker_id`")
    return {name: _published(name, row) for name, row in named.items()}


def _published(name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    given = {**row, "cached": row.get("cached_prefill")}
    found: dict[str, Any] = {kind: _number(name, kind, given.get(kind)) for kind in PRICE_KINDS}
    size = re.fullmatch(r"(\d+)([KM]?)", str(row.get("context")).strip())
    found["context"] = int(size[1]) * _THOUSANDS[size[2]] if size else None
    return found


def _number(name: str, kind: str, value: Any) -> float | None:
    """Return a price; None if the table has none, such as "—". Raise TableError if it is below 0:
    such a table is not to be trusted."""
    match = re.fullmatch(r"\$?\s*(-?\d+(?:\.\d+)?)", str(value).strip())
    if match is None or isinstance(value, bool):
        return None
    if (usd := float(match[1])) < 0:
        raise TableError(f"the {kind} price of `{name}` is {usd:g}, less than nothing")
    return usd
