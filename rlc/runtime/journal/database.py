"""The journal of a run: a SQLite file that is the truth about what has been done.

A step is written when it starts and again, with its metrics and its data cursor in one
transaction, when it is done; the state that was saved after it is written once the service has
it, and the weights that a step samples from before it does. Spend is written as it happens and
never taken back.

Every commit survives the death of the process. Against a loss of power the file is synced with each
checkpoint, before an older one is deleted: what was written since then may be gone.
"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from rlc.plan.records import BudgetPlan
from rlc.runtime.records import RunError, Usage

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    stage TEXT, step INTEGER, started REAL NOT NULL, finished REAL,
    cursor TEXT, metrics TEXT, PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS checkpoints (
    stage TEXT, step INTEGER, path TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS snapshots (
    stage TEXT, step INTEGER, path TEXT NOT NULL, created REAL NOT NULL,
    PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS sources (
    stage TEXT, step INTEGER, source INTEGER NOT NULL, PRIMARY KEY (stage, step));
CREATE TABLE IF NOT EXISTS spend (
    stage TEXT, step INTEGER, prefill INTEGER, cached INTEGER, sampled INTEGER, trained INTEGER,
    usd REAL);
CREATE INDEX IF NOT EXISTS spend_of_step ON spend (stage, step);
"""

_STEPS = "SELECT step, cursor, metrics FROM steps WHERE stage = ? AND finished IS NOT NULL"


@frozen
class StoredStep:
    """A finished step: its number, the data cursor after it, and its metrics."""

    step: int
    cursor: dict[str, Any]
    metrics: dict[str, Any]


@frozen
class StoredCheckpoint:
    """Weights as they were after a step, and where the service has them."""

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

    def __add__(self, more: Used) -> Used:
        return Used(self.usd + more.usd, self.tokens + more.tokens, self.seconds + more.seconds)


class Journal:
    """One open journal. Raises RunError if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self._used: dict[str, Used] = {}  # by stages whose sum was asked for, kept up to date
        try:
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            (told,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if told != "ok":
                raise sqlite3.DatabaseError(told.replace("\n", " "))
        except sqlite3.DatabaseError as error:
            raise RunError(*_unusable(path, error)) from error

    @classmethod
    def reading(cls, path: Path) -> Journal:
        """A journal to look at, of a run that may be going on: nothing is written, not even a
        lock. Raises RunError if there is none to read."""
        journal = cls.__new__(cls)
        journal._used = {}
        try:
            journal._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
            journal._db.execute("SELECT COUNT(*) FROM meta").fetchone()
        except sqlite3.DatabaseError as error:
            raise RunError(*_unusable(path, error)) from error
        return journal

    def close(self) -> None:
        self._db.close()

    def set_meta(self, **values: str) -> None:
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def meta(self, key: str) -> str | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return row[0] if row else None

    def start_step(self, stage: str, step: int, source: int | None = None) -> None:
        """A step begins; ``source`` is the one whose weights it samples from."""
        with self._db:
            self._db.execute("BEGIN")
            self._db.execute(
                "INSERT OR REPLACE INTO steps (stage, step, started) VALUES (?, ?, ?)",
                (stage, step, time.time()),
            )
            if source is not None:
                self._db.execute(
                    "INSERT OR REPLACE INTO sources VALUES (?, ?, ?)", (stage, step, source)
                )

    def sources(self, stage: str) -> dict[int, int]:
        """The step whose weights each step sampled from that ever began, rewound or not."""
        rows = self._db.execute("SELECT step, source FROM sources WHERE stage = ?", (stage,))
        return dict(rows.fetchall())

    def finish_step(
        self,
        stage: str,
        step: int,
        cursor: dict[str, Any],
        metrics: dict[str, Any],
    ) -> None:
        """Commit a step."""
        self._db.execute(
            "UPDATE steps SET finished = ?, cursor = ?, metrics = ? WHERE stage = ? AND step = ?",
            (time.time(), json.dumps(cursor), json.dumps(metrics), stage, step),
        )
        self._add(stage, Used(0.0, 0, metrics.get("time/total", 0.0)))

    def add_checkpoint(self, stage: str, step: int, path: str) -> None:
        """Weights and optimiser after a step are saved under ``path``; with this the file is
        synced."""
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)",
            (stage, step, path, time.time()),
        )
        self._db.execute("PRAGMA synchronous=NORMAL")

    def drop_checkpoint(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM checkpoints WHERE stage = ? AND step = ?", (stage, step))

    def checkpoints(self, stage: str) -> list[StoredCheckpoint]:
        """Oldest first."""
        rows = self._db.execute(
            "SELECT step, path FROM checkpoints WHERE stage = ? ORDER BY step", (stage,)
        )
        return [StoredCheckpoint(*row) for row in rows]

    def add_snapshot(self, stage: str, step: int, path: str) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", (stage, step, path, time.time())
        )

    def drop_snapshot(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM snapshots WHERE stage = ? AND step = ?", (stage, step))

    def snapshots(self, stage: str) -> list[StoredCheckpoint]:
        """Weights saved for sampling, oldest first."""
        rows = self._db.execute(
            "SELECT step, path FROM snapshots WHERE stage = ? ORDER BY step", (stage,)
        )
        return [StoredCheckpoint(*row) for row in rows]

    def saved_paths(self) -> set[str]:
        """Of all that the run has saved and still knows."""
        rows = self._db.execute("SELECT path FROM checkpoints UNION SELECT path FROM snapshots")
        return {path for (path,) in rows}

    def steps(self, stage: str) -> list[StoredStep]:
        """The finished steps in order."""
        rows = self._db.execute(f"{_STEPS} ORDER BY step", (stage,))
        return [_stored(*row) for row in rows]

    def step(self, stage: str, step: int) -> StoredStep | None:
        """A step, if it is finished."""
        row = self._db.execute(f"{_STEPS} AND step = ?", (stage, step)).fetchone()
        return row and _stored(*row)

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of all finished steps and evaluations, in the order they were done."""
        rows = self._db.execute(
            "SELECT metrics FROM steps WHERE finished IS NOT NULL ORDER BY finished, rowid"
        )
        return [json.loads(metrics) for (metrics,) in rows]

    def has_begun(self) -> bool:
        """Whether any step was started, or anything paid for; True where it cannot be told."""
        try:
            row = self._db.execute(
                "SELECT EXISTS (SELECT 1 FROM steps) OR EXISTS (SELECT 1 FROM spend)"
            ).fetchone()
        except sqlite3.Error:
            return True
        return bool(row[0])

    def last_change(self) -> float:
        """When a step last began or ended (seconds since the epoch); 0 before the first."""
        row = self._db.execute("SELECT MAX(MAX(started, COALESCE(finished, 0))) FROM steps")
        return float(row.fetchone()[0] or 0.0)

    def rewind(self, stage: str, step: int) -> None:
        """Forget the steps after ``step``: their weights were not saved."""
        self._db.execute("DELETE FROM steps WHERE stage = ? AND step > ?", (stage, step))
        self._used.pop(stage, None)

    def add_spend(self, stage: str, step: int, usage: Usage, usd: float | None) -> None:
        tokens = asdict(usage).values()
        self._db.execute(
            "INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)", (stage, step, *tokens, usd)
        )
        self._add(stage, Used(usd or 0.0, sum(tokens), 0.0))

    def used(self, stage: str, step: int | None = None) -> Used:
        """What a stage has used (or one step of it); seconds are those of finished steps."""
        if step is not None:
            return self._sum("stage = ? AND step = ?", stage, step)
        if stage not in self._used:
            self._used[stage] = self._sum("stage = ?", stage)
        return self._used[stage]

    def _add(self, stage: str, more: Used) -> None:
        if stage in self._used:
            self._used[stage] += more

    def _sum(self, where: str, *values: str | int) -> Used:
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


def _stored(step: int, cursor: str, metrics: str) -> StoredStep:
    return StoredStep(step, json.loads(cursor), json.loads(metrics))


def _unusable(path: Path, error: sqlite3.Error) -> tuple[str, str]:
    """What to say of a file that cannot be used, and what to do."""
    if isinstance(error, sqlite3.OperationalError):
        why = "make room on the disk, or see to its permissions, then try again"
        return f"the journal {path} cannot be opened: {error}", why
    restore = "restore it from a backup, or start a new run"
    return f"the journal {path} cannot be read: {error}", restore
