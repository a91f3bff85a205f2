"""Tables of models that the user has read anew, kept in their configuration; and how old prices
may be."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from typing import Any

from rlc.errors import Error

STALE_DAYS = 90
PRICE_KINDS = ("prefill", "cached", "sample", "train")
_COLUMNS = {kind: kind for kind in PRICE_KINDS} | {"cached": "cached_prefill"}


class TableError(Error, ValueError):
    """A table of models that cannot be read or kept; the message says why."""

    exit_status = 2


def config_folder() -> str:
    """Return the folder of the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "rlc")


def today() -> str:
    """Return the day of today, or that of ``RLC_TODAY``, for what has to be the same every day."""
    return os.environ.get("RLC_TODAY") or time.strftime("%Y-%m-%d")


def is_stale(as_of: str | None) -> bool:
    """Return whether prices of a day are too old to be relied on."""
    from datetime import date, timedelta  # checks need none

    oldest = date.fromisoformat(today()) - timedelta(STALE_DAYS)
    return as_of is not None and as_of < oldest.isoformat()


def table_file() -> str:
    """Return the file that keeps what was read anew."""
    return os.path.join(config_folder(), "models.json")


def keep_table(source: str, models: Mapping[str, Mapping[str, Any]]) -> None:
    """Keep models of today in place of what was read of them before. Raise TableError if the file
    cannot be read or written."""
    path, kept = table_file(), {}
    dated = {name: {**facts, "as_of": today(), "source": source} for name, facts in models.items()}
    try:
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)["models"]
        os.makedirs(config_folder(), exist_ok=True)
        for name in [name for name, facts in dated.items() if "price" not in facts]:
            if "price" in kept.get(name, {}):  # a server tells no prices, and takes none away
                del dated[name]
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"models": {**kept, **dated}}, file, indent=1)
        os.replace(f"{path}.new", path)
    except (OSError, ValueError, LookupError, TypeError) as error:
        hint = "`rlc models --forget` removes it"
        raise TableError(f"cannot keep models in {path}: {error}", hint) from error


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
            context = _number(row.get("context"))
            prices = {kind: _number(row.get(column)) for kind, column in _COLUMNS.items()}
            known = {kind: usd for kind, usd in prices.items() if usd is not None}
            found[name] = ({"context": int(context)} if context else {}) | {"price": known}
    if not found:
        raise TableError("it is no list of models with a `tinker_id`")
    return found


def _number(text: Any) -> float | None:
    """Return ``$0.195`` or ``64K`` as a number; None for all else, such as "—"."""
    match = re.fullmatch(r"\$?(\d+(?:\.\d+)?)([KM]?)", str(text).strip())
    return float(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]] if match else None
