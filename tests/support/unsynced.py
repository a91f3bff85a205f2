"""Files that are not synced to the disk: only the loss of power needs it, which no test plays, and
each time costs some milliseconds."""

from __future__ import annotations

import os
import sqlite3
from functools import partial
from typing import Any


class _Connection(sqlite3.Connection):
    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        return super().execute(_OFF if sql.startswith(_PRAGMA) else sql, *args)


_PRAGMA = "PRAGMA synchronous="
_OFF = f"{_PRAGMA}OFF"


def sync_nothing() -> None:
    """Have this process write files without waiting for the disk."""
    os.fsync = lambda fd: None  # noqa: ARG005
    sqlite3.connect = partial(sqlite3.connect, factory=_Connection)  # type: ignore[assignment]
