"""The journal of a sweep, a SQLite file that is the truth about its trials, and its results.

A trial is written before it begins, and again when it has ended; its steps are in the journal of
its own run folder.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Literal, get_args

from attrs import field, frozen

from rlc.plan import Configuration, SweepPlan, Trial
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
    """The state of a trial, its metric once it has finished, or the ``cause`` of another end."""

    trial: Trial
    state: TrialState
    cause: str
    value: float | None

    @property
    def ended(self) -> bool:
        return self.state in (*COMPLETED, "failed")


@frozen
class MetricReport:
    """The metric of a configuration's first trial after a step."""

    number: int
    step: int
    value: float


class SweepJournal:
    """An open journal, for several threads. Raise RunError if it cannot be used."""

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
            if "_db" in vars(self):
                self._db.close()
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
        """Write trials to run, all or none of them; known ones stay as they are."""
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
        """Return all trials, by number and seed."""
        columns = "number, configuration, seed, state, cause, value"
        query = f"SELECT {columns} FROM trials ORDER BY number, seed"
        with self._lock:
            rows = self._db.execute(query).fetchall()
        known = {state: state for state in get_args(TrialState)}
        return [
            TrialRecord(Trial(number, json.loads(text), seed), known[state], cause, value)
            for number, text, seed, state, cause, value in rows
        ]

    def report(self, report: MetricReport) -> bool:
        """Write a report. Return whether it is new."""
        row = report.number, report.step, report.value
        insert = "INSERT OR IGNORE INTO reports (number, step, value) VALUES (?, ?, ?)"
        with self._lock:
            return self._db.execute(insert, row).rowcount == 1

    def reports(self) -> list[MetricReport]:
        """Return all reports, oldest first."""
        with self._lock:
            rows = self._db.execute("SELECT number, step, value FROM reports ORDER BY place")
            return [MetricReport(*row) for row in rows.fetchall()]


class SweepObserver:
    """Base class whose methods do nothing: override those of interest.

    They are called on the threads of the trials, one at a time, and must return quickly.
    """

    def started(self, plan: SweepPlan, size: int, folder: Path) -> None:
        """The sweep has begun, or has been resumed; it is to have so many trials."""

    def trial(self, record: TrialRecord) -> None:
        """A trial is waiting, has begun, or has ended."""

    def step(
        self, trial: Trial, stage: str, step: int, of: int, metrics: Mapping[str, Any]
    ) -> None:
        """A step of a trial is done; its stage has ``of`` steps."""

    def measured(self, trial: Trial, step: int, value: float) -> None:
        """A trial's metric after a step."""

    def spent(self, usd: float) -> None:
        """All trials together have cost so many dollars."""

    def note(self, text: str) -> None:
        """Something worth a line of its own happened."""

    def close(self) -> None:
        """The sweep is over."""


# 97.5 % quantiles of Student's t, for 1 degree of freedom and up.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
_Z = 1.959964


@frozen
class ConfigurationResult:
    """A configuration with its trials; ``mean`` of the metric over the seeds that have finished,
    None if none has; ``margin``, half of its 95 % confidence interval (Student's t), None with
    fewer than two seeds."""

    number: int
    configuration: Configuration
    trials: tuple[TrialRecord, ...]
    mean: float | None
    margin: float | None

    @property
    def complete(self) -> bool:
        return all(record.state == "finished" for record in self.trials)


@frozen
class SweepState:
    """The state of a sweep, ``"running"`` while it runs; see :class:`SweepSummary`."""

    plan: SweepPlan
    state: str
    cause: str
    trials: tuple[TrialRecord, ...] = field(repr=False)
    spent_usd: float

    @property
    def results(self) -> list[ConfigurationResult]:
        """All configurations that were begun, the best first."""
        return ranked(self.plan, self.trials)

    @property
    def best(self) -> ConfigurationResult | None:
        """The best configuration, None if none has finished."""
        return best_of(self.results)

    @property
    def failed(self) -> list[TrialRecord]:
        return [record for record in self.trials if record.state == "failed"]


@frozen
class SweepSummary(SweepState):
    """How a sweep ended; :func:`rlc.sweep` returns it.

    Attributes:
        plan: the record of the sweep.
        state: ``"finished"``, ``"interrupted"``, ``"budget"``, or ``"failed"`` if it gave up.
        cause: why it ended before its end; empty if it did not.
        trials: all trials so far, each with its ``state``, ``cause`` and ``value``.
        spent_usd: what it has cost, 0 if unknown or nothing.
        folder: the folder of the sweep.
    """

    folder: Path


def ranked(plan: SweepPlan, trials: Iterable[TrialRecord]) -> list[ConfigurationResult]:
    """Return the configurations of trials, the best first, incomplete ones after the others."""
    by_number: dict[int, list[TrialRecord]] = {}
    for record in trials:
        by_number.setdefault(record.trial.number, []).append(record)
    results = []
    for number, records in by_number.items():
        values = [r.value for r in records if r.state == "finished" and r.value is not None]
        mean, configuration = fmean(values) if values else None, records[0].trial.configuration
        found = ConfigurationResult(number, configuration, tuple(records), mean, margin(values))
        results.append(found)
    sign = -1.0 if plan.metric.more_is_better else 1.0

    def place(result: ConfigurationResult) -> tuple[bool, bool, float, int]:
        value = 0.0 if result.mean is None else sign * result.mean
        return result.mean is None, not result.complete, value, result.number

    return sorted(results, key=place)


def best_of(results: Sequence[ConfigurationResult]) -> ConfigurationResult | None:
    """Return the first of ranked results; None if it has no value."""
    return results[0] if results and results[0].mean is not None else None


def margin(values: Sequence[float]) -> float | None:
    """Return half of the 95 % confidence interval (Student's t); None of fewer than two values."""
    if len(values) < 2:
        return None
    freedom = len(values) - 1
    if freedom <= len(_T):
        t = _T[freedom - 1]
    else:  # the Cornish–Fisher expansion, exact to 1e-3 here (Abramowitz and Stegun, 26.7.5)
        t = _Z + (_Z**3 + _Z) / (4 * freedom)
        t += (5 * _Z**5 + 16 * _Z**3 + 3 * _Z) / (96 * freedom**2)
        t += (3 * _Z**7 + 19 * _Z**5 + 17 * _Z**3 - 15 * _Z) / (384 * freedom**3)
    return 0.0 if min(values) == max(values) else t * stdev(values) / sqrt(len(values))
