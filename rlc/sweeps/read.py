"""A sweep in its folder, read without writing anything, while it runs and after."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from rlc.catalog import plan_from_file
from rlc.plan import JOURNAL_FILE, PLAN_FILE, Plan, PlanFormatError, SweepPlan, Trial
from rlc.runtime import (
    GONE,
    NOTHING,
    Journal,
    RecordedUsage,
    RunError,
    RunInfo,
    is_locked,
    is_run,
    list_runs,
    read_run,
)
from rlc.sweeps.journal import SWEEP_FILE, SweepJournal
from rlc.sweeps.results import SweepState

TRIALS, SHARED = "trials", "shared"  # folders of runs
BASE_FILE = "recipe.json"  # the recipe's own plan


@frozen
class SweepInfo(SweepState):
    """How the sweep in a folder stands, which may still be running. ``base`` is the recipe's own
    plan, None if it cannot be read any more.

    Times are seconds since the epoch, or None if unknown.
    """

    path: Path
    base: Plan | None
    recipe: str
    started: float | None
    updated: float | None

    def folder_of(self, trial: Trial) -> Path:
        """The run folder of a trial."""
        return trial_folder(self.path, trial)


def trial_folder(path: Path, trial: Trial) -> Path:
    """The run folder of a trial of the sweep in a folder."""
    return path / TRIALS / f"{trial.number:04d}-seed{trial.seed}-{trial.id}"


def run_folders(path: Path) -> list[Path]:
    """The run folders in that of a sweep: of trials, and of stages that trials share."""
    return [*path.glob(f"{TRIALS}/*"), *path.glob(f"{SHARED}/*")]


def is_sweep(path: Path) -> bool:
    """Whether a folder is that of a sweep."""
    return (path / SWEEP_FILE).is_file()


def require_sweep(path: Path) -> None:
    """Raise RunError if a folder is not that of a sweep."""
    if not is_sweep(path):
        raise RunError(
            f"{path} is not the folder of a sweep: it has no {SWEEP_FILE}",
            "give the folder that an earlier `rlc sweep` named",
        )


def begun_with(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the recipe that a sweep was begun with, and its options. Raise RunError if there is
    none.

    The recipe is looked for as it is seen from the sweep's folder, if the whole project was moved,
    and where it was when the sweep began.
    """
    require_sweep(path)
    with closing(SweepJournal(path / SWEEP_FILE, read_only=True)) as journal:
        recipe = journal.meta("recipe") or ""
        options = json.loads(journal.meta("made_from") or "{}")
    base = _base(path)
    if base is None or not os.path.isfile(base.recipe):
        return recipe, options
    if options.get("folder"):  # where paths of the options start, which was moved too
        away = os.path.relpath(options["folder"], os.path.dirname(recipe))
        options["folder"] = os.path.abspath(os.path.join(os.path.dirname(base.recipe), away))
    return base.recipe, options


def runs_in(root: Path) -> list[RunInfo]:
    """Return the run in a folder; or the trials of the sweep, or the runs that are in it, newest
    first."""
    folder = root / TRIALS if is_sweep(root) else root
    return [read_run(folder)] if is_run(folder) else list_runs(folder)


def read_sweep(path: Path) -> SweepInfo:
    """Return how the sweep in a folder stands. Raise RunError if there is none, or its journal
    cannot be read."""
    from cattrs import Converter

    require_sweep(path)
    try:
        with closing(SweepJournal(path / SWEEP_FILE, read_only=True)) as journal:
            state, cause = journal.meta("state") or "running", journal.meta("cause") or ""
            running = is_locked(path)
            if state == "running" and not running:
                state, cause = "interrupted", GONE
            trials = journal.trials()
            if not running:
                trials = [
                    evolve(r, state="interrupted", cause=GONE) if r.state == "running" else r
                    for r in trials
                ]
            started, updated = (journal.meta(name) for name in ("started", "updated"))
            return SweepInfo(
                path=path,
                plan=Converter().structure(json.loads(journal.meta("sweep") or ""), SweepPlan),
                base=_base(path),
                recipe=journal.meta("recipe") or "",
                state=state,
                cause=cause,
                started=float(started) if started else None,
                updated=float(updated or started or 0.0) or None,
                trials=tuple(trials),
                spent_usd=sum(map(_spent, run_folders(path))),
            )
    except (sqlite3.Error, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path / SWEEP_FILE} cannot be read: {error}") from error


def _base(path: Path) -> Plan | None:
    try:
        data = json.loads((path / BASE_FILE).read_text(encoding="utf-8"))
        return plan_from_file(data, path)[0]
    except (OSError, ValueError, PlanFormatError):
        return None


def _spent(run: Path) -> float:
    if not (run / JOURNAL_FILE).is_file():
        return 0.0
    with closing(Journal(run / JOURNAL_FILE, read_only=True)) as journal:
        return journal.spent_usd()


def used_in(path: Path, of: str) -> RecordedUsage:
    """What a run has used itself: of a trial, the stages before ``of`` were run elsewhere."""
    stages = json.loads((path / PLAN_FILE).read_text(encoding="utf-8"))["stages"]
    names = [stage["name"] for stage in stages]
    if of in names:
        names = [s["name"] for s in stages if s["name"] == of or "steps" not in s]
    with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
        return sum(map(journal.used, names), NOTHING)
