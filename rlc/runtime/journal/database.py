"""The journal of a run: a SQLite file that is the truth about what has been done and paid for.

A step is written when it starts, and again when it is done, with its metrics and data cursor. The
state saved after it is written once the service has it, the weights that a step samples from
before it does so. Spend is written as it happens and never taken back.

Every commit survives the death of the process. To survive a loss of power, the file is synced with
each checkpoint, before an older one is deleted: what was written later may be lost.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from attrs import asdict, astuple, define, evolve, field, frozen

from rlc.catalog import dollars, model_price
from rlc.data import SCHEMA, meta, saved
from rlc.plan import BudgetPlan, ModelPlan
from rlc.runtime.records import RunError, Usage


@frozen
class StoredStep:
    """A finished step: its number, the data cursor after it, and its metrics."""

    step: int
    cursor: dict[str, Any]
    metrics: dict[str, Any]


@frozen
class RecordedUsage:
    """Dollars (0 if free or unknown), tokens of all kinds, and seconds of finished steps."""

    usd: float
    tokens: int
    seconds: float

    def fits(self, budget: BudgetPlan, more: RecordedUsage) -> bool:
        """Return whether a budget has room for ``more``."""
        limits = (budget.usd, budget.tokens, budget.seconds)
        pairs = zip(limits, astuple(self + more), strict=True)
        return all(limit is None or used <= limit for limit, used in pairs)

    def __add__(self, more: RecordedUsage) -> RecordedUsage:
        return RecordedUsage(
            self.usd + more.usd, self.tokens + more.tokens, self.seconds + more.seconds
        )

    def less(self, done: RecordedUsage) -> RecordedUsage:
        """Return what is left of it, at least nothing."""
        usd, tokens = max(self.usd - done.usd, 0.0), max(self.tokens - done.tokens, 0)
        return RecordedUsage(usd, tokens, max(self.seconds - done.seconds, 0.0))


NOTHING = RecordedUsage(0.0, 0, 0.0)


class Journal:
    """An open journal; ``read_only`` writes nothing, not even a lock, so that it can be read while
    the run goes on. Raise RunError if the file cannot be used."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self._used: dict[str, RecordedUsage] = {}  # totals of stages so far
        try:
            if read_only:
                self._db = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
                self._db.execute("SELECT COUNT(*) FROM meta").fetchone()
                return
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(SCHEMA)
            (verdict,) = self._db.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict.replace("\n", " "))
        except sqlite3.DatabaseError as error:
            if "_db" in vars(self):
                self._db.close()
            done, hint = "read", "restore it from a backup, or start a new run"
            if isinstance(error, sqlite3.OperationalError):
                done = "opened"
                hint = "make room on the disk, or see to its permissions, then try again"
            raise RunError(f"the journal {path} cannot be {done}: {error}", hint) from error

    def close(self) -> None:
        self._db.close()

    def set_meta(self, **values: str) -> None:
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())

    def meta(self, key: str) -> str | None:
        return meta(self._db, key)

    def start_step(self, stage: str, step: int, source: int | None = None) -> None:
        """Write that a step begins, and after which step the weights are that it samples from."""
        begin = "INSERT OR REPLACE INTO steps (stage, step, started) VALUES (?, ?, ?)"
        with self._db as db:
            db.execute("BEGIN")
            db.execute(begin, (stage, step, time.time()))
            if source is not None:
                db.execute("INSERT OR REPLACE INTO sources VALUES (?, ?, ?)", (stage, step, source))

    def sources(self, stage: str) -> dict[int, int]:
        """Return the source of each step that ever began, rewound or not."""
        rows = self._db.execute("SELECT step, source FROM sources WHERE stage = ?", (stage,))
        return dict(rows.fetchall())

    def finish_step(
        self, stage: str, step: int, cursor: dict[str, Any], metrics: dict[str, Any]
    ) -> None:
        self._db.execute(
            "UPDATE steps SET finished = ?, cursor = ?, metrics = ? WHERE stage = ? AND step = ?",
            (time.time(), json.dumps(cursor), json.dumps(metrics), stage, step),
        )
        self._add(stage, RecordedUsage(0.0, 0, metrics.get("time/total", 0.0)))

    def steps(self, stage: str) -> list[StoredStep]:
        return self._finished("AND stage = ? ORDER BY step", stage)

    def step(self, stage: str, step: int) -> StoredStep | None:
        """Return a step if it is finished, else None."""
        return next(iter(self._finished("AND stage = ? AND step = ?", stage, step)), None)

    def metrics(self) -> list[dict[str, Any]]:
        """Return the metrics of all finished steps and evaluations, in the order of their ends."""
        return [stored.metrics for stored in self._finished("ORDER BY finished, rowid")]

    def _finished(self, which: str, *values: str | int) -> list[StoredStep]:
        query = f"SELECT step, cursor, metrics FROM steps WHERE finished IS NOT NULL {which}"
        rows = self._db.execute(query, values)
        return [StoredStep(step, json.loads(c), json.loads(metrics)) for step, c, metrics in rows]

    def has_begun(self) -> bool:
        """Return whether a step was started, or anything paid for; True if that is unreadable."""
        query = "SELECT EXISTS (SELECT 1 FROM steps) OR EXISTS (SELECT 1 FROM spend)"
        try:
            return bool(self._db.execute(query).fetchone()[0])
        except sqlite3.Error:
            return True

    def last_change(self) -> float:
        """Return when a step last began or ended (seconds since the epoch); 0 before the first."""
        row = self._db.execute("SELECT MAX(MAX(started, COALESCE(finished, 0))) FROM steps")
        return float(row.fetchone()[0] or 0.0)

    def rewind(self, stage: str, step: int) -> None:
        """Forget the steps after ``step``, whose weights were not saved."""
        self._db.execute("DELETE FROM steps WHERE stage = ? AND step > ?", (stage, step))
        self._used.pop(stage, None)

    def add_checkpoint(self, stage: str, step: int, path: str) -> None:
        """Write where the state after a step is saved, and sync the file."""
        self._db.execute("PRAGMA synchronous=FULL")
        self._add_weights("checkpoints", stage, step, path)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def drop_checkpoint(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM checkpoints WHERE stage = ? AND step = ?", (stage, step))

    def checkpoints(self, stage: str) -> dict[int, str]:
        """Return the path of the state saved after each step, oldest first."""
        return {step: path for step, (path, _) in saved(self._db, "checkpoints", stage).items()}

    def add_snapshot(self, stage: str, step: int, path: str) -> None:
        self._add_weights("snapshots", stage, step, path)

    def drop_snapshot(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM snapshots WHERE stage = ? AND step = ?", (stage, step))

    def snapshots(self, stage: str) -> dict[int, str]:
        """Return the path of the weights saved for sampling after each step, oldest first."""
        return {step: path for step, (path, _) in saved(self._db, "snapshots", stage).items()}

    def saved_paths(self) -> set[str]:
        """Return the paths of all checkpoints and snapshots of the run."""
        rows = self._db.execute("SELECT path FROM checkpoints UNION SELECT path FROM snapshots")
        return {path for (path,) in rows}

    def _add_weights(
        self, table: Literal["checkpoints", "snapshots"], stage: str, step: int, path: str
    ) -> None:
        row = (stage, step, path, time.time())
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", row)

    def take(self, other: Path, stages: Iterable[str]) -> None:
        """Copy steps and checkpoints of stages from another journal, all or nothing, not spend."""
        self._db.execute("ATTACH ? AS other", (str(other),))
        try:
            with self._db as db:
                db.execute("BEGIN")
                for stage in stages:
                    for table in ("steps", "sources", "checkpoints", "snapshots"):
                        db.execute(
                            f"INSERT INTO {table} SELECT * FROM other.{table} WHERE stage = ?",
                            (stage,),
                        )
        finally:
            self._db.execute("DETACH other")

    def answer(self, question: str) -> tuple[str, str] | None:
        """Return the text and the stop reason of the reply to a question; None if there is none."""
        query = "SELECT text, stop_reason FROM answers WHERE question = ?"
        row: tuple[str, str] | None = self._db.execute(query, (question,)).fetchone()
        return row

    def keep_answer(self, question: str, text: str, stop_reason: str) -> None:
        row = (question, text, stop_reason)
        self._db.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", row)

    def add_spend(self, stage: str, step: int, usage: Usage, usd: float | None) -> None:
        tokens = asdict(usage).values()
        row = (stage, step, *tokens, usd)
        self._db.execute("INSERT INTO spend VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        self._add(stage, RecordedUsage(usd or 0.0, sum(tokens), 0.0))

    def used(self, stage: str, step: int | None = None) -> RecordedUsage:
        """Return what a stage, or one step of it, has used."""
        if step is not None:
            return self._sum("stage = ? AND step = ?", stage, step)
        if stage not in self._used:
            self._used[stage] = self._sum("stage = ?", stage)
        return self._used[stage]

    def _add(self, stage: str, more: RecordedUsage) -> None:
        if stage in self._used:
            self._used[stage] += more

    def _sum(self, where: str, *values: str | int) -> RecordedUsage:
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
        return RecordedUsage(float(usd), int(tokens), float(seconds))

    def spent_usd(self) -> float:
        """Return the dollars spent so far, repeated steps included; 0 if free, or if the price of
        any of it is unknown."""
        if not self.prices_are_known():
            return 0.0
        row = self._db.execute("SELECT COALESCE(SUM(usd), 0) FROM spend").fetchone()
        return float(row[0])

    def prices_are_known(self) -> bool:
        """Return whether all that was used so far has a price."""
        return self._db.execute("SELECT 1 FROM spend WHERE usd IS NULL").fetchone() is None


PROBES = 0  # the step that is charged for the first checks


@define
class Meter:
    """Writes the usage of one stage's steps to the journal, each token once, at the prices of
    ``model``. Responses are added to ``running``, the totals of the running steps. A step that
    fails, or is repeated after a crash, is charged too."""

    journal: Journal
    stage: str
    model: ModelPlan
    running: defaultdict[int, Usage] = field(factory=lambda: defaultdict(Usage), init=False)
    _written: dict[int, Usage] = field(factory=dict, init=False)

    def write(self) -> None:
        """Write the growth of the running totals since the last call."""
        for step, usage in self.running.items():
            before = asdict(self._written.get(step, Usage()))
            self.add(step, Usage(**{kind: n - before[kind] for kind, n in asdict(usage).items()}))
            self._written[step] = evolve(usage)

    def finish(self, step: int) -> Usage:
        """Write all totals; remove and return that of a step."""
        self.write()
        self._written.pop(step, None)
        return self.running.pop(step, Usage())

    def add(self, step: int, usage: Usage) -> None:
        """Write usage beside the running total of a step."""
        if any(asdict(usage).values()):
            self.journal.add_spend(self.stage, step, usage, cost(self.model, usage))


def cost(model: ModelPlan, usage: Usage) -> float | None:
    """Return the cost on the model's service in dollars; None if a price is unknown."""
    return dollars(model_price(model), usage)
