"""What a run folder holds, read without disturbing the run that may still be writing it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path

from attrs import frozen

from rlc.catalog import plan_from_file
from rlc.check import check_plan
from rlc.lang import Diagnostic, Severity
from rlc.plan import JOURNAL_FILE, PLAN_FILE, Plan, PlanFormatError
from rlc.runtime import TIMELINE_FILE, Record, RunError, read_lines, read_metrics

TOKEN_KINDS = ("prefill", "cached", "sampled", "trained")


@frozen
class Spent:
    """Tokens of one step by kind, and dollars; None if the price is unknown."""

    stage: str
    step: int
    tokens: dict[str, int]
    usd: float | None


@frozen
class TimeSpan:
    """When a part of a node ran, in seconds since the epoch."""

    stage: str
    step: int
    part: int
    kind: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@frozen
class RunFiles:
    """``metrics`` has one record for each step and evaluation, in the order they were done;
    ``evaluations`` are the spans of the latter, ``steps`` those of all that is journalled;
    ``warnings`` are those of the rules on its plan; ``data_changed`` has a sentence for each data
    file that changed before the run went on; ``audit`` is what was known of each environment as the
    run began, see :func:`rlc.catalog.audited`."""

    path: Path
    plan: Plan
    metrics: tuple[Record, ...]
    timeline: tuple[TimeSpan, ...]
    evaluations: tuple[TimeSpan, ...]
    spent: tuple[Spent, ...]
    warnings: tuple[Diagnostic, ...] = ()
    data_changed: tuple[str, ...] = ()
    steps: tuple[TimeSpan, ...] = ()
    audit: Mapping[str, int | None] = {}

    def of_stage(self, stage: str) -> list[Record]:
        """Return the metrics of one stage, by step."""
        mine = [record for record in self.metrics if record["stage"] == stage]
        return sorted(mine, key=lambda record: int(record["step"]))


def read_files(path: Path) -> RunFiles:
    """Read everything but the episodes. Raise RunError if it is not the folder of a run."""
    plan = read_plan(path)
    evals = {stage.name for stage in plan.evaluations}
    spent, done, changed, audit = _read_journal(path / JOURNAL_FILE)
    timeline = []
    for record in read_lines(path / TIMELINE_FILE):
        with suppress(TypeError):  # a line that something else wrote
            timeline.append(TimeSpan(**record))
    return RunFiles(
        path=path,
        plan=plan,
        metrics=tuple(read_metrics(path)),
        timeline=tuple(timeline),
        evaluations=tuple(span for span in done if span.stage in evals),
        spent=tuple(spent),
        warnings=tuple(w for w in check_plan(plan) if w.severity is Severity.WARNING),
        data_changed=tuple(changed),
        steps=tuple(done),
        audit=audit,
    )


def read_plan(path: Path) -> Plan:
    """Read the plan of a run folder. Raise RunError if there is none."""
    try:
        data = json.loads((path / PLAN_FILE).read_text(encoding="utf-8"))
        return plan_from_file(data, path)[0]
    except OSError as error:
        problem = f"{path} is not a run folder: it has no {PLAN_FILE}"
        raise RunError(problem, "`rlc runs` lists the runs that there are") from error
    except (ValueError, PlanFormatError) as error:
        raise RunError(f"{path / PLAN_FILE} is not a plan: {error}") from error


def _read_journal(
    path: Path,
) -> tuple[list[Spent], list[TimeSpan], list[str], Mapping[str, int | None]]:
    """Return what was spent, the spans of finished steps and evaluations, changes of data, and how
    many findings audits had."""
    if not path.is_file():
        return [], [], [], {}
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            spent = db.execute(f"SELECT stage, step, usd, {', '.join(TOKEN_KINDS)} FROM spend")
            rows = [
                Spent(stage, step, dict(zip(TOKEN_KINDS, tokens, strict=True)), usd)
                for stage, step, usd, *tokens in spent
            ]
            columns = "stage, step, 0, 'evaluation', started, finished"
            done = db.execute(f"SELECT {columns} FROM steps WHERE finished IS NOT NULL")
            spans = [TimeSpan(*row) for row in done]
            keys = "'data_changed', 'audit'"
            meta = dict(db.execute(f"SELECT key, value FROM meta WHERE key IN ({keys})"))
            audit = json.loads(meta.get("audit", "{}"))
            return rows, spans, meta.get("data_changed", "").splitlines(), audit
    except sqlite3.Error as error:
        raise RunError(f"the journal {path} cannot be read: {error}") from error
