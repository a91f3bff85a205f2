"""What runs there are, and how each of them stands: read from their folders, written by nobody.

A folder is read while its run goes on, after it was killed, and as far as it can be when it is
damaged. A run whose journal says ``running`` runs only while a process holds the folder's lock.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.locks import is_locked
from rlc.runtime.records import RunError

State = Literal["running", "finished", "budget", "interrupted", "failed", "damaged"]
_ENDS: tuple[State, ...] = ("finished", "budget", "interrupted", "failed")
GONE = "its process is gone"


@frozen
class StageInfo:
    """How far a stage is: steps of a training stage, evaluations of an evaluation.

    ``kind`` is ``train``, ``sft`` or ``eval``; ``metrics`` are those of the last that is done.
    """

    name: str
    kind: str
    done: int
    total: int
    metrics: Mapping[str, Any] = field(repr=False)


@frozen
class RunInfo:
    """How a run stands. ``cause`` says why it is not running and not finished, where that is
    known; times are seconds since the epoch, None where the folder does not tell."""

    path: Path
    recipe: str
    state: State
    cause: str | None
    started: float | None
    updated: float | None
    stages: tuple[StageInfo, ...]
    spent_usd: float

    @property
    def resumable(self) -> bool:
        """Whether `rlc run --resume` has something to go on with."""
        return self.state in ("budget", "interrupted", "failed")


def list_runs(root: Path) -> list[RunInfo]:
    """The runs whose folders lie in ``root``, the one that began last first."""
    if not root.is_dir():
        return []
    runs = [read_run(path) for path in sorted(root.iterdir()) if is_run(path)]
    return sorted(runs, key=lambda run: run.started or 0.0, reverse=True)


def is_run(path: Path) -> bool:
    """Whether a folder looks like that of a run, whole or damaged."""
    return any((path / name).is_file() for name in ("plan.json", "journal.sqlite"))


def read_run(path: Path) -> RunInfo:
    """How the run in a folder stands. Raises RunError for a folder that is no run's."""
    if not is_run(path):
        raise RunError(
            f"{path} is not a run folder: it has no plan.json and journal.sqlite",
            "give the folder that an earlier `rlc run` named",
        )
    try:
        plan = _plan(path)
        journal = Journal.reading(path / "journal.sqlite")
    except (RunError, ValueError, OSError) as error:
        return _damaged(path, str(error))
    try:
        return _read(path, plan, journal)
    except (KeyError, TypeError, ValueError, sqlite3.Error) as error:
        return _damaged(path, f"{type(error).__name__}: {error}")
    finally:
        journal.close()


def _plan(path: Path) -> dict[str, Any]:
    try:
        plan = json.loads((path / "plan.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path / 'plan.json'} is not JSON: {error}") from error
    if not isinstance(plan, dict):
        raise ValueError(f"{path / 'plan.json'} is not a plan")
    return plan


def _read(path: Path, plan: dict[str, Any], journal: Journal) -> RunInfo:
    state, cause = _state(path, journal)
    started, updated = journal.meta("started"), float(journal.meta("updated") or 0.0)
    latest = max(updated, journal.last_change())
    return RunInfo(
        path=path,
        recipe=str(plan["recipe"]),
        state=state,
        cause=cause,
        started=float(started) if started else None,
        updated=latest or None,
        stages=tuple(_stages(plan["stages"], journal)),
        spent_usd=journal.spent_usd(),
    )


def _state(path: Path, journal: Journal) -> tuple[State, str | None]:
    told, cause = journal.meta("state"), journal.meta("cause") or None
    if told == "running":
        return ("running", None) if is_locked(path) else ("interrupted", GONE)
    for state in _ENDS:
        if told == state:
            return state, cause
    return "damaged", "the journal does not say how it stands"


def _stages(stages: list[dict[str, Any]], journal: Journal) -> Iterator[StageInfo]:
    steps = {stage["name"]: stage.get("steps", 0) for stage in stages}
    for stage in stages:
        done = journal.steps(stage["name"])
        total = stage["steps"] if "steps" in stage else _evaluations(stage, steps)
        metrics = done[-1].metrics if done else {}
        yield StageInfo(stage["name"], stage["kind"], len(done), total, metrics)


def _evaluations(stage: dict[str, Any], steps: Mapping[str, int]) -> int:
    """How often an evaluation is done: at the end, between, and before the first step."""
    evaluated = steps.get(stage["after"], 0)
    between = (evaluated - 1) // stage["every"] if stage["every"] else 0
    return int(stage["first"]) + between + 1


def _damaged(path: Path, cause: str) -> RunInfo:
    return RunInfo(path, "", "damaged", cause, None, None, (), 0.0)
