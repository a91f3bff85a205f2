"""The journal of a sweep: a SQLite file that is the truth about its trials.

A trial is written before it begins, and again when it has ended. What a run does in between is in
the journal of its own folder.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from attrs import frozen

from rlc.plan import Trial
from rlc.runtime import RunError

SWEEP_FILE = "sweep.sqlite"

TrialState = Literal["waiting", "running", "finished", "pruned", "budget", "interrupted", "failed"]
COMPLETED: tuple[TrialState, ...] = ("finished", "pruned")  # and not run again

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS trials (
    id TEXT PRIMARY KEY, number INTEGER NOT NULL, seed INTEGER NOT NULL,
    configuration TEXT NOT NULL, state TEXT NOT NULL, cause TEXT NOT NULL, value REAL,
    changed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS reports (
    place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, step INTEGER NOT NULL,
    value REAL NOT NULL, UNIQUE (number, step));
"""


@frozen
class TrialRecord:
    """How a trial stands. ``value`` is its metric once it has finished; ``cause`` says why it
    ended otherwise."""

    trial: Trial
    state: TrialState
    cause: str
    value: float | None

    @property
    def ended(self) -> bool:
        """Whether it has come to an end: it was completed, or failed."""
        return self.state in (*COMPLETED, "failed")


@frozen
class MetricReport:
    """The metric of a configuration's first trial on its way."""

    number: int
    step: int
    value: float


class SweepJournal:
    """One open journal, which several threads may use. Raise RunError if it cannot be used."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._lock = threading.RLock()
        try:
            if read_only:
                uri = f"{path.resolve().as_uri()}?mode=ro"
                self._db = sqlite3.connect(uri, uri=True, check_same_thread=False)
                self._db.execute("SELECT COUNT(*) FROM meta").fetchone()
                return
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            hint = "restore it from a backup, or begin a new sweep"
            raise RunError(f"the journal {path} cannot be read: {error}", hint) from error

    def close(self) -> None:
        self._db.close()

    def set_meta(self, **values: str) -> None:
        with self._lock:
            self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def meta(self, key: str) -> str | None:
        with self._lock:
            row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def add(self, trials: Sequence[Trial]) -> None:
        """Write trials that are to be run, all or none of them. Those that are known stay."""
        now = time.time()
        rows = [(t.id, t.number, t.seed, json.dumps(dict(t.configuration)), now) for t in trials]
        insert = "INSERT OR IGNORE INTO trials VALUES (?, ?, ?, ?, 'waiting', '', NULL, ?)"
        with self._lock, self._db as db:
            db.execute("BEGIN")
            db.executemany(insert, rows)

    def set_state(
        self, trial: Trial, state: TrialState, cause: str = "", value: float | None = None
    ) -> None:
        with self._lock:
            self._db.execute(
                "UPDATE trials SET state = ?, cause = ?, value = ?, changed = ? WHERE id = ?",
                (state, cause, value, time.time(), trial.id),
            )

    def trials(self) -> list[TrialRecord]:
        """Return all trials that were written, in order."""
        query = (
            "SELECT number, configuration, seed, state, cause, value FROM trials "
            "ORDER BY number, seed"
        )
        with self._lock:
            rows = self._db.execute(query).fetchall()
        known = {state: state for state in get_args(TrialState)}
        return [
            TrialRecord(Trial(number, json.loads(text), seed), known[state], cause, value)
            for number, text, seed, state, cause, value in rows
        ]

    def report(self, report: MetricReport) -> bool:
        """Write a metric on the way. Return whether it is new."""
        row = report.number, report.step, report.value
        insert = "INSERT OR IGNORE INTO reports (number, step, value) VALUES (?, ?, ?)"
        with self._lock:
            return self._db.execute(insert, row).rowcount == 1

    def reports(self) -> list[MetricReport]:
        """Return all reports, in the order in which they were made."""
        with self._lock:
            rows = self._db.execute("SELECT number, step, value FROM reports ORDER BY place")
            return [MetricReport(*row) for row in rows.fetchall()]
