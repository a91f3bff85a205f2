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
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

from attrs import field, frozen

from rlc.algo import bounds
from rlc.plan import Configuration, SweepPlan, Trial
from rlc.runtime import RunError
from rlc.sweeps.claims import ClaimResult, claim_dicts, verdicts
from rlc.sweeps.trials import TrialRecord, TrialState

SWEEP_FILE = "sweep.sqlite"

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
        return all(record.state in ("finished", "decided") for record in self.trials)


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
    def claims(self) -> list[ClaimResult]:
        """The verdicts on what the recipe claims of the sweep, by the trials that have ended."""
        return verdicts(self.plan, self.trials)

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
    found = bounds(values, 0.975)
    return None if found is None else (found[1] - found[0]) / 2


def summary_dict(summary: SweepSummary) -> dict[str, Any]:
    """Return how a sweep ended as data: its configurations, the best first, and its claims."""
    return {
        "sweep": summary.plan.name,
        "folder": str(summary.folder),
        "state": summary.state,
        "cause": summary.cause,
        "metric": summary.plan.metric.name,
        "spent_usd": summary.spent_usd,
        "results": [
            {
                "number": result.number,
                "configuration": dict(result.configuration),
                "mean": result.mean,
                "margin": result.margin,
                "trials": [
                    {"seed": r.trial.seed, "state": r.state, "cause": r.cause, "value": r.value}
                    for r in result.trials
                ],
            }
            for result in summary.results
        ],
        "claims": claim_dicts(summary.claims),
    }
