"""The folder of a sweep: its journal, its lock, and the run folders of its trials.

Stages that trials share are run once, and taken as any run takes what others have finished: a trial
can then be resumed and reported like any other run.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict, define, evolve, frozen

from rlc.catalog import plan_from_file, plan_to_file
from rlc.plan import (
    JOURNAL_FILE,
    PLAN_FILE,
    MeasurePlan,
    Plan,
    PlanFormatError,
    SweepPlan,
    Trial,
    build_graph,
    plan_hash,
)
from rlc.runtime import (
    GONE,
    NOTHING,
    Journal,
    RecordedUsage,
    Reuse,
    RunError,
    RunFolder,
    RunInfo,
    begin_with,
    is_locked,
    is_run,
    list_runs,
    locked,
    made_and_locked,
    read_run,
    whole_stages,
    window_mean,
)
from rlc.sweeps.journal import SWEEP_FILE, SweepJournal, SweepState

if TYPE_CHECKING:
    from rlc.compile import Sweep


TRIALS, SHARED = "trials", "shared"  # folders of runs
BASE_FILE = "recipe.json"  # the recipe's own plan


@frozen
class SweepInfo(SweepState):
    """The state of the sweep in a folder; times are seconds since the epoch, None if unknown."""

    path: Path
    base: Plan | None  # of the recipe itself; None if it is unreadable
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
    """Return the recipe that a sweep was begun with, as seen from its folder or else where it was,
    and its options. Raise RunError if there is no sweep."""
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
    """Return the state of the sweep in a folder. Raise RunError if it cannot be read."""
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
        return plan_from_file(json.loads((path / BASE_FILE).read_text(encoding="utf-8")), path)[0]
    except (OSError, ValueError, PlanFormatError):
        return None


def _spent(run: Path) -> float:
    if not (run / JOURNAL_FILE).is_file():
        return 0.0
    with closing(Journal(run / JOURNAL_FILE, read_only=True)) as journal:
        return journal.spent_usd()


def used_in(path: Path) -> RecordedUsage:
    """Return what a run has used itself, without what it has taken from others."""
    stages = json.loads((path / PLAN_FILE).read_text(encoding="utf-8"))["stages"]
    with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
        return sum((journal.used(stage["name"]) for stage in stages), NOTHING)


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
        """Raise RunError if the recipe was changed since the sweep was begun, budget aside."""
        begun = json.loads(self.journal.meta("sweep") or "{}")
        now = json.loads(json.dumps(asdict(sweep.plan)))
        begun.setdefault("claims", [])  # of a sweep of an earlier version
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


def shared_part(plan: Plan, of: str) -> Plan | None:
    """Return the plan of the stages before ``of``, without expectations; None if there are none."""
    stages = tuple(s for s in plan.trainings if s.name != of)
    if not stages:
        return None
    names = tuple(f"stages.{stage.name}." for stage in stages)
    origins = {k: v for k, v in plan.provenance.items() if k == "seed" or k.startswith(names)}
    graph = build_graph(stages)
    return evolve(plan, stages=stages, graph=graph, provenance=origins, expectations=())


def create(
    path: Path, plan: Plan, shared: Path | None, reuse: Reuse, names: Sequence[str] = ()
) -> None:
    """Make the run folder of a trial, complete or not at all. It begins with its stages ``names``
    as in the finished run in ``shared``, if there is one, and with what other runs have done."""
    partial = path.with_name(f".{path.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    others = [part for part in reuse.parts if part.stage not in names]
    own = [] if shared is None else whole_stages(plan, shared, names)
    with closing(RunFolder.create(partial, plan)) as folder:
        begin_with(folder, evolve(reuse, parts=(*own, *others)))
    partial.rename(path)


def own_stages(plan: Plan, of: str) -> Sequence[str]:
    """Return the names of the stages that a trial runs itself."""
    return [s.name for s in plan.stages if s.name == of or not s.trains]


def values_on_the_way(journal: Journal, metric: MeasurePlan) -> list[tuple[int, float]]:
    """Return the metric after each step that has it."""
    return [
        (stored.step, float(stored.metrics[metric.key]))
        for stored in journal.steps(metric.stage)
        if metric.key in stored.metrics
    ]


def value_of(journal: Journal, metric: MeasurePlan, plan: Plan, of: str) -> float | None:
    """Return the last evaluation of a finished trial, or the mean of its own measure, or None."""
    found = values_on_the_way(journal, metric)
    if metric.stage == of:
        return window_mean([value for _, value in found], last=True)
    (steps,) = (s.steps for s in plan.trainings if s.name == of)
    return dict(found).get(steps)
