"""The folder of a sweep: its journal, its lock, and the run folders of its trials.

It is read without writing anything, while the sweep runs and after.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, evolve, frozen

from rlc.catalog import plan_from_file, plan_to_file
from rlc.plan import JOURNAL_FILE, PLAN_FILE, Plan, PlanFormatError, SweepPlan, Trial, plan_hash
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
    locked,
    made_and_locked,
    read_run,
)
from rlc.sweeps.journal import SWEEP_FILE, SweepJournal, SweepState

if TYPE_CHECKING:
    from rlc.compile import Sweep

TRIALS, SHARED = "trials", "shared"  # folders of runs
BASE_FILE = "recipe.json"  # the recipe's own plan


@frozen
class SweepInfo(SweepState):
    """The state of the sweep in a folder. ``base`` is the recipe's own plan, None if it is
    unreadable; times are seconds since the epoch, None if unknown."""

    path: Path
    base: Plan | None
    recipe: str
    started: float | None
    updated: float | None

    def folder_of(self, trial: Trial) -> Path:
        return trial_folder(self.path, trial)


def trial_folder(path: Path, trial: Trial) -> Path:
    """Return the run folder of a trial of the sweep in a folder."""
    return path / TRIALS / f"{trial.number:04d}-seed{trial.seed}-{trial.id}"


def run_folders(path: Path) -> list[Path]:
    """Return the run folders of a sweep: of its trials, and of stages that trials share."""
    return [*path.glob(f"{TRIALS}/*"), *path.glob(f"{SHARED}/*")]


def is_sweep(path: Path) -> bool:
    """Return whether a folder is that of a sweep."""
    return (path / SWEEP_FILE).is_file()


def require_sweep(path: Path) -> None:
    """Raise RunError if a folder is not that of a sweep."""
    if not is_sweep(path):
        raise RunError(
            f"{path} is not the folder of a sweep: it has no {SWEEP_FILE}",
            "give the folder that an earlier `rlc sweep` named",
        )


def begun_with(path: Path) -> tuple[str, dict[str, Any]]:
    """Return the recipe that a sweep was begun with, and its options. Raise RunError if there is no
    sweep.

    The recipe is searched for as seen from the sweep's folder, in case the project was moved, and
    where it was when the sweep began.
    """
    require_sweep(path)
    with closing(SweepJournal(path / SWEEP_FILE, read_only=True)) as journal:
        recipe = journal.meta("recipe") or ""
        options = json.loads(journal.meta("made_from") or "{}")
    base = _base(path)
    if base is None or not os.path.isfile(base.recipe):
        return recipe, options
    if options.get("folder"):  # where paths of the options start, which was moved too
        relative = os.path.relpath(options["folder"], os.path.dirname(recipe))
        options["folder"] = os.path.abspath(os.path.join(os.path.dirname(base.recipe), relative))
    return base.recipe, options


def runs_in(root: Path) -> list[RunInfo]:
    """Return the run in a folder, the trials of its sweep, or the runs in it, newest first."""
    folder = root / TRIALS if is_sweep(root) else root
    return [read_run(folder)] if is_run(folder) else list_runs(folder)


def read_sweep(path: Path) -> SweepInfo:
    """Return the state of the sweep in a folder. Raise RunError if there is none, or its journal
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
    """Return what a run has used itself: in a trial, the stages before ``of`` are another run's."""
    stages = json.loads((path / PLAN_FILE).read_text(encoding="utf-8"))["stages"]
    names = [stage["name"] for stage in stages]
    if of in names:
        names = [s["name"] for s in stages if s["name"] == of or "steps" not in s]
    with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
        return sum(map(journal.used, names), NOTHING)


@define(eq=False)
class SweepFolder:
    """An open, locked folder, made by :meth:`create` or :meth:`resume`."""

    path: Path
    journal: SweepJournal
    _opened: ExitStack

    @classmethod
    def create(
        cls, path: Path | None, sweep: Sweep, base: Plan, made_from: dict[str, Any]
    ) -> SweepFolder:
        """Make a new folder, by default ``runs/RECIPE-SWEEP-TIME``. ``made_from`` are the options
        of the recipe's compilation. Raise RunError if it has content or cannot be written."""
        name = f"{Path(base.recipe).stem}-{sweep.plan.name}"
        with made_and_locked(path, name, "folder", "sweep --resume") as (where, opened):
            journal = opened.enter_context(closing(SweepJournal(where / SWEEP_FILE)))
            (where / TRIALS).mkdir()
            text = json.dumps(plan_to_file(base, where), indent=2, ensure_ascii=False) + "\n"
            (where / BASE_FILE).write_text(text, encoding="utf-8")
            folder = cls(where, journal, opened.pop_all())
        journal.set_meta(
            sweep=json.dumps(asdict(sweep.plan)),
            plan_hash=plan_hash(base),
            recipe=os.path.abspath(base.recipe),
            made_from=json.dumps(made_from),
            started=repr(time.time()),
            state="running",
        )
        return folder

    @classmethod
    def resume(cls, path: Path) -> SweepFolder:
        """Open the folder of an earlier sweep. Raise RunError if there is none, or it is in use."""
        require_sweep(path)
        with locked(path, "folder") as opened:
            journal = opened.enter_context(closing(SweepJournal(path / SWEEP_FILE)))
            return cls(path, journal, opened.pop_all())

    def require_same(self, sweep: Sweep, base: Plan) -> None:
        """Raise RunError if the recipe differs from the one that the sweep was begun with, budget
        aside."""
        begun = json.loads(self.journal.meta("sweep") or "{}")
        now = json.loads(json.dumps(asdict(sweep.plan)))
        changed = [key for key in now if key != "budget" and begun.get(key) != now[key]]
        if plan_hash(base) != self.journal.meta("plan_hash"):
            changed.append("the job itself")
        if changed:
            raise RunError(
                f"{base.recipe} says something else than what {self.path} was begun with: "
                f"{', '.join(changed)}",
                "put it back to go on, or begin a new sweep; its trials so far stay",
            )
        self.journal.set_meta(sweep=json.dumps(now))  # with the budget of now

    def of_trial(self, trial: Trial) -> Path:
        return trial_folder(self.path, trial)

    def of_shared(self, plan: Plan) -> Path:
        """Return the run folder of stages that trials have in common."""
        return self.path / SHARED / plan_hash(plan)[:12]

    def set_state(self, state: str, cause: str = "") -> None:
        self.journal.set_meta(state=state, cause=cause, updated=repr(time.time()))

    def close(self) -> None:
        """Close the journal and release the lock; safe to call twice."""
        self._opened.close()
