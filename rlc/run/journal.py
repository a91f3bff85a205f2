"""The journal of a run: a SQLite file that is the truth about what has been done.

A step is written when it starts and again, with its metrics, its data cursor and its checkpoint
in one transaction, when it is done. Spend is written as it happens and never taken back.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from rlc.plan.tree import BudgetPlan
from rlc.run.records import RunError, Usage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    stage TEXT, step INTEGER, started REAL NOT NULL, finished REAL,
    cursor TEXT, metrics TEXT, PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS checkpoints (
    stage TEXT, step INTEGER, path TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS spend (
    stage TEXT, step INTEGER, prefill INTEGER, cached INTEGER, sampled INTEGER, trained INTEGER,
    usd REAL);
"""


@frozen
class StoredStep:
    """A finished step: its number, the data cursor after it, and its metrics."""

    step: int
    cursor: dict[str, int]
    metrics: dict[str, Any]


@frozen
class StoredCheckpoint:
    step: int
    path: str


@frozen
class Used:
    """Dollars (0 where nothing is known or costs), tokens of all kinds, and seconds of steps."""

    usd: float
    tokens: int
    seconds: float

    def fits(self, budget: BudgetPlan, more: Used) -> bool:
        """Whether a budget has room for ``more``."""
        limits = (
            (budget.usd, self.usd + more.usd),
            (budget.tokens, self.tokens + more.tokens),
            (budget.seconds, self.seconds + more.seconds),
        )
        return all(limit is None or total <= limit for limit, total in limits)


class Journal:
    """One open journal. Raises RunError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(_SCHEMA)
        except sqlite3.DatabaseError as error:
            raise RunError(
                f"the journal {path} cannot be read: {error}",
                "restore it from a backup, or start a new run",
            ) from error

    def close(self) -> None:
        self._db.close()

    def set_meta(self, **values: str) -> None:
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def meta(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def start_step(self, stage: str, step: int) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO steps (stage, step, started) VALUES (?, ?, ?)",
            (stage, step, time.time()),
        )

    def finish_step(
        self,
        stage: str,
        step: int,
        cursor: dict[str, int],
        metrics: dict[str, Any],
        checkpoint: str | None,
    ) -> None:
        """Commit a step and, if there is one, the checkpoint that was taken after it."""
        now = time.time()
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "UPDATE steps SET finished = ?, cursor = ?, metrics = ?"
                " WHERE stage = ? AND step = ?",
                (now, json.dumps(cursor), json.dumps(metrics), stage, step),
            )
            if checkpoint is not None:
                self.add_checkpoint(stage, step, checkpoint)

    def add_checkpoint(self, stage: str, step: int, path: str) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
            (stage, step, path, time.time()),
        )

    def drop_checkpoint(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM checkpoints WHERE stage = ? AND step = ?", (stage, step))

    def checkpoints(self, stage: str) -> list[StoredCheckpoint]:
        """Oldest first."""
        rows = self._db.execute(
            "SELECT step, path FROM checkpoints WHERE stage = ? ORDER BY step", (stage,)
        )
        return [StoredCheckpoint(*row) for row in rows]

    def steps(self, stage: str) -> list[StoredStep]:
        """The finished steps in order."""
        rows = self._db.execute(
            "SELECT step, cursor, metrics FROM steps"
            " WHERE stage = ? AND finished IS NOT NULL ORDER BY step",
            (stage,),
        )
        return [StoredStep(step, json.loads(cursor), json.loads(m)) for step, cursor, m in rows]

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of all finished steps and evaluations, in the order they were done."""
        rows = self._db.execute(
            "SELECT metrics FROM steps WHERE finished IS NOT NULL ORDER BY finished, rowid"
        )
        return [json.loads(metrics) for (metrics,) in rows]

    def rewind(self, stage: str, step: int) -> None:
        """Forget the steps after ``step``: their weights were not saved."""
        self._db.execute("DELETE FROM steps WHERE stage = ? AND step > ?", (stage, step))

    def add_spend(self, stage: str, step: int, usage: Usage, usd: float | None) -> None:
        values = asdict(usage)
        self._db.execute(
            "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)", (stage, step, *values.values(), usd)
        )

    def used(self, stage: str, step: int | None = None) -> Used:
        """What a stage has used (or one step of it); seconds are those of finished steps."""
        where = "stage = ?" + ("" if step is None else " AND step = ?")
        values = (stage,) if step is None else (stage, step)
        usd, tokens = self._db.execute(
            "SELECT COALESCE(SUM(usd), 0), COALESCE(SUM(prefill + cached + sampled + trained), 0)"
            f" FROM spend WHERE {where}",
            values,
        ).fetchone()
        (seconds,) = self._db.execute(
            "SELECT COALESCE(SUM(json_extract(metrics, '$.\"time/total\"')), 0)"
            f" FROM steps WHERE {where}",
            values,
        ).fetchone()
        return Used(float(usd), int(tokens), float(seconds))

    def spent_usd(self) -> float:
        """Dollars so far, repeated steps included; 0 where prices are unknown or nothing costs."""
        row = self._db.execute("SELECT COALESCE(SUM(usd), 0) FROM spend").fetchone()
        return float(row[0])
