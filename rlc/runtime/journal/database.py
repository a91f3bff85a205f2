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
from collections.abc import Collection, Iterable, Sequence
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


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


_TAKEN, _SPEND = "taken", "spend/usd"


@frozen
class TakenSteps:
    """Steps, or evaluations, of a stage that another ``run`` has done, with the steps after which
    states and snapshots of weights are taken, too. ``usd`` and ``seconds`` are what they took there
    (None: a price is unknown), ``left_out`` the metrics of the last step that this plan has not,
    and ``foreign`` the paths of weights that stay the other run's, on a service."""

    stage: str
    run: str
    steps: tuple[int, ...]
    states: tuple[int, ...] = ()
    snapshots: tuple[int, ...] = ()
    usd: float | None = 0.0
    seconds: float = 0.0
    left_out: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    def until(self, step: int) -> TakenSteps:
        """Return it without later steps."""
        return evolve(self, steps=tuple(one for one in self.steps if one <= step))


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
        taken = self.taken()
        kept = [one.until(step) if one.stage == stage else one for one in taken]
        if kept != taken:
            self._set_taken(
                one for one, was in zip(kept, taken, strict=True) if one.steps or not was.steps
            )

    def add_checkpoint(self, stage: str, step: int, path: str) -> None:
        """Write where the state after a step is saved, and sync the file."""
        self._db.execute("PRAGMA synchronous=FULL")
        self._add_weights("checkpoints", stage, step, path)
        self._db.execute("PRAGMA synchronous=NORMAL")

    def drop_checkpoint(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM checkpoints WHERE stage = ? AND step = ?", (stage, step))

    def checkpoints(self, stage: str) -> dict[int, str]:
        """Return the path of the state saved after each step, oldest first."""
        return {step: path for step, (path, _) in self.weights("checkpoints", stage).items()}

    def add_snapshot(self, stage: str, step: int, path: str) -> None:
        self._add_weights("snapshots", stage, step, path)

    def drop_snapshot(self, stage: str, step: int) -> None:
        self._db.execute("DELETE FROM snapshots WHERE stage = ? AND step = ?", (stage, step))

    def snapshots(self, stage: str) -> dict[int, str]:
        """Return the path of the weights saved for sampling after each step, oldest first."""
        return {step: path for step, (path, _) in self.weights("snapshots", stage).items()}

    def weights(
        self, table: Literal["checkpoints", "snapshots"], stage: str
    ) -> dict[int, tuple[str, float]]:
        """Return the path of what is saved after each step, and its time, oldest first."""
        return saved(self._db, table, stage)

    def saved_paths(self) -> set[str]:
        """Return the paths of all checkpoints and snapshots of the run."""
        rows = self._db.execute("SELECT path FROM checkpoints UNION SELECT path FROM snapshots")
        return {path for (path,) in rows}

    def _add_weights(
        self, table: Literal["checkpoints", "snapshots"], stage: str, step: int, path: str
    ) -> None:
        row = (stage, step, path, time.time())
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", row)

    def take(self, other: Path, taken: Sequence[TakenSteps]) -> None:
        """Copy steps, with the weights saved after them, from another journal, all or nothing; not
        what they cost: in each of them the spend of this run is nothing so far."""
        self._db.execute("ATTACH ? AS other", (str(other),))
        try:
            with self._db as db:
                db.execute("BEGIN")
                for one in taken:
                    self._copy(db, one)
                self._set_taken([*self.taken(), *taken])
        finally:
            self._db.execute("DETACH other")
            self._used.clear()

    def _set_taken(self, taken: Iterable[TakenSteps]) -> None:
        self.set_meta(**{_TAKEN: json.dumps([asdict(one) for one in taken])})

    def _copy(self, db: sqlite3.Connection, one: TakenSteps) -> None:
        def copy(table: str, steps: Iterable[int]) -> None:
            which = f"INSERT INTO {table} SELECT * FROM other.{table} WHERE stage = ? AND step = ?"
            db.executemany(which, [(one.stage, step) for step in steps])

        copy("steps", one.steps)
        copy("checkpoints", one.states)
        copy("snapshots", one.snapshots)
        last = max(one.steps, default=0)
        copy("sources", range(1, last + 1))
        which = "WHERE stage = ? AND step = ?"
        for key in one.left_out:
            edit = f"UPDATE steps SET metrics = json_remove(metrics, ?) {which}"
            db.execute(edit, (f'$."{key}"', one.stage, last))
        spent = f"UPDATE steps SET metrics = json_replace(metrics, ?, 0.0) {which}"
        db.executemany(spent, [(f'$."{_SPEND}"', one.stage, step) for step in one.steps])

    def taken(self) -> list[TakenSteps]:
        """Return the steps that other runs have done, in the order in which they were taken."""
        known = json.loads(self.meta(_TAKEN) or "[]")
        return [TakenSteps(**{k: _as_tuple(v) for k, v in one.items()}) for one in known]

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
            return self._sum(stage, step)
        if stage not in self._used:
            self._used[stage] = self._sum(stage)
        return self._used[stage]

    def _add(self, stage: str, more: RecordedUsage) -> None:
        if stage in self._used:
            self._used[stage] += more

    def _sum(self, stage: str, step: int | None = None) -> RecordedUsage:
        """Return what a stage, or a step of it, has used; the time of steps that another run has
        done is not this run's."""
        where, values = "stage = ?", (stage,) if step is None else (stage, step)
        where += "" if step is None else " AND step = ?"
        usd, tokens = self._db.execute(
            "SELECT COALESCE(SUM(usd), 0), COALESCE(SUM(prefill + cached + sampled + trained), 0)"
            f" FROM spend WHERE {where}",
            values,
        ).fetchone()
        time_of = "json_extract(metrics, '$.\"time/total\"')"
        times = self._db.execute(f"SELECT step, {time_of} FROM steps WHERE {where}", values)
        taken = {done for one in self.taken() if one.stage == stage for done in one.steps}
        seconds = sum(took or 0.0 for done, took in times if done not in taken)
        return RecordedUsage(float(usd), int(tokens), float(seconds))

    def spent_usd(self) -> float:
        """Return the dollars spent so far, repeated steps included; 0 if free, or if the price of
        any of it is unknown."""
        if not self.prices_are_known():
            return 0.0
        row = self._db.execute("SELECT COALESCE(SUM(usd), 0) FROM spend").fetchone()
        return float(row[0])

    def cost_of(self, stage: str, steps: Collection[int]) -> float | None:
        """Return the dollars that steps of a stage have cost; None if a price is unknown."""
        rows = self._db.execute("SELECT step, usd FROM spend WHERE stage = ?", (stage,))
        paid = [usd for step, usd in rows if step in steps]
        return None if None in paid else float(sum(paid))

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
