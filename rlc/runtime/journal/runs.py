"""The runs of a folder, their states and what differs between them, read without writing anything.

A run is read while it is running, after it was killed, and as far as possible if it is damaged. A
run whose journal says ``running`` is running only while a process holds its folder's lock.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, get_args

from attrs import field, frozen

from rlc.catalog import STAGES, WatchedMetric, plan_from_file, recipe_in_file
from rlc.plan import (
    JOURNAL_FILE,
    PLAN_FILE,
    REHEARSAL,
    ComparedValue,
    ExpectationPlan,
    ExpectationResult,
    Over,
    Plan,
    PlanFormatError,
    QuantityPlan,
    differing_paths,
    expectations_from_dict,
    plan_values,
    shown_value,
    word_of,
)
from rlc.runtime.journal.database import Journal
from rlc.runtime.journal.folder import is_locked, no_run
from rlc.runtime.journal.metrics import watched_so_far
from rlc.runtime.records import RunError

_OVER: Mapping[Over, Callable[[Sequence[float]], float]] = {
    "last": lambda values: values[-1],
    "first": lambda values: values[0],
    "min": min,
    "max": max,
    "mean": fmean,
    "sum": sum,
}


def judged_after(
    expectations: Sequence[ExpectationPlan],
    records_of: Callable[[str], Sequence[Mapping[str, Any]]],
    is_done: Callable[[str], bool],
    ended: bool,
    rehearses: bool,
) -> tuple[ExpectationResult, ...]:
    """Judge the expectations that are known after a run.

    Args:
        expectations: all of the plan.
        records_of: returns the metrics of a stage, in the order of its steps or evaluations.
        is_done: returns whether all of a stage is there.
        ended: whether the run has reached its end, or its budget. Then an expectation on an unknown
            value fails.
        rehearses: whether the run is a rehearsal, which need not learn.
    """

    def value(quantity: QuantityPlan) -> float | None:
        assert quantity.stage is not None
        assert quantity.over is not None
        values = [float(r[quantity.key]) for r in records_of(quantity.stage) if quantity.key in r]
        return _OVER[quantity.over](values) if values else None

    def judge(one: ExpectationPlan) -> ExpectationResult:
        if rehearses:
            return one.unknown("a rehearsal need not learn")
        if all(is_done(quantity.stage or "") for quantity in one.quantities):
            judged = one.judged(value)
            return judged if judged.holds is not None else one.unknown("it was not measured", False)
        if ended:
            return one.unknown("the run ended before it was measured", False)
        return one.unknown("the run has not come to it")

    return tuple(judge(one) for one in expectations if one.after)


State = Literal[
    "running", "finished", "nothing learnt", "budget", "interrupted", "failed", "damaged"
]
NOTHING_LEARNT = "nothing learnt"  # the state of a run in which a stage has ended in vain
GONE = "its process is gone"


@frozen
class StageInfo:
    """The steps of a training stage, or the evaluations of one, and the last metrics. ``watched``:
    what a training stage is about."""

    name: str
    kind: str
    done: int
    total: int
    metrics: Mapping[str, Any] = field(repr=False)
    watched: tuple[WatchedMetric, ...] = field(default=(), repr=False)


@frozen
class RunInfo:
    """The state of a run, its ``cause`` if it is known, and its expectations. Times are seconds
    since the epoch, None if unknown. ``version`` is of rlc, ``tags`` are of `rlc run --tag`."""

    path: Path
    recipe: str
    state: State
    cause: str | None
    started: float | None
    updated: float | None
    stages: tuple[StageInfo, ...]
    spent_usd: float | None  # None: a price is unknown
    expectations: tuple[ExpectationResult, ...] = ()
    version: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def resumable(self) -> bool:
        """Whether `rlc run --resume` can continue the run; at its budget it would stop again."""
        return self.state in ("interrupted", "failed")


def list_runs(root: Path) -> list[RunInfo]:
    """Return the runs whose folders are in ``root``, newest first."""
    if not root.is_dir():
        return []
    runs = [read_run(path) for path in sorted(root.iterdir()) if is_run(path)]
    return sorted(runs, key=lambda run: run.started or 0.0, reverse=True)


def is_run(path: Path) -> bool:
    """Return whether a folder looks like a run's, complete or damaged."""
    return any((path / name).is_file() for name in (PLAN_FILE, JOURNAL_FILE))


def version_of(folder: Path, files: Iterable[str]) -> tuple[object, ...]:
    """Return a value that changes when a run begins, ends, or writes to one of its files."""
    found: list[object] = [is_locked(folder)]
    for name in files:
        try:
            state = os.stat(folder / name)
        except OSError:
            continue
        if state.st_size:  # reading a journal leaves an empty file beside it
            found.append((name, state.st_size, state.st_mtime_ns))
    return tuple(found)


def read_run(path: Path) -> RunInfo:
    """Return the state of the run in a folder. Raise RunError if there is none."""
    if not is_run(path):
        raise no_run(path)
    try:
        try:
            plan = json.loads((path / PLAN_FILE).read_text(encoding="utf-8"))
        except ValueError as error:
            raise RunError(f"{path / PLAN_FILE} is not JSON: {error}") from error
        if not isinstance(plan, dict):
            raise RunError(f"{path / PLAN_FILE} is not a plan")
        with closing(Journal(path / JOURNAL_FILE, read_only=True)) as journal:
            return _run_info(path, plan, journal)
    except (RunError, PlanFormatError, OSError) as error:
        cause = str(error)
    except (KeyError, TypeError, ValueError, sqlite3.Error) as error:
        cause = f"{type(error).__name__}: {error}"
    return RunInfo(path, "", "damaged", cause, None, None, (), 0.0)


def _run_info(path: Path, plan: dict[str, Any], journal: Journal) -> RunInfo:
    written, cause = journal.meta("state"), journal.meta("cause") or None
    states = {state: state for state in get_args(State) if state != "damaged"}
    state: State = states.get(written, "damaged")
    if written not in states:
        cause = "the journal does not say how it stands"
    elif state == "running":
        state, cause = ("running", None) if is_locked(path) else ("interrupted", GONE)
    records: dict[str, list[dict[str, Any]]] = {}
    known_plan = _read_plan(path, plan)
    plans = {stage.name: stage for stage in known_plan.stages} if known_plan else {}
    stages, steps = [], {stage["name"]: stage.get("steps", 0) for stage in plan["stages"]}
    for stage in plan["stages"]:
        if "steps" in stage:
            total = stage["steps"]
        else:  # evaluations: before the first step, in between, and at the end
            evaluated, every = steps.get(stage["after"], 0), stage["every"]
            total = int(stage["first"]) + ((evaluated - 1) // every if every else 0) + 1
        done = journal.steps(stage["name"])
        metrics = done[-1].metrics if done else {}
        records[stage["name"]] = [step.metrics for step in done]
        kind, known = word_of(stage), plans.get(stage["name"])
        about = STAGES[kind].watched
        if known is not None and known.trains:
            with suppress(KeyError):  # a builtin of another version
                about = tuple(watched_so_far(known, records[known.name]))
        stages.append(StageInfo(stage["name"], kind, len(done), total, metrics, about))
    started, updated = journal.meta("started"), float(journal.meta("updated") or 0.0)
    # The recipe is where it is as seen from the run folder, or where it was when the run began.
    recipe, absolute = recipe_in_file(plan, path), journal.meta("recipe")
    moved = absolute and os.path.isfile(absolute) and not os.path.isfile(recipe)
    return RunInfo(
        path=path,
        recipe=absolute if absolute and moved else recipe,
        state=state,
        cause=cause,
        started=float(started) if started else None,
        updated=max(updated, journal.last_change()) or None,
        stages=tuple(stages),
        spent_usd=journal.spent_usd() if journal.prices_are_known() else None,
        expectations=judged_after(
            expectations_from_dict(plan),
            records.__getitem__,
            {stage.name: stage.done >= stage.total for stage in stages}.__getitem__,
            ended=state in ("finished", "budget", "nothing learnt"),
            rehearses=REHEARSAL in plan.get("provenance", {}).values(),
        ),
        version=journal.meta("version"),
        tags=tuple((journal.meta("tags") or "").split()),
    )


_GIVEN = ("--set", "--seed", "--weights", "--service")  # origins of values set on the command line


def what_differs(runs: Sequence[RunInfo]) -> dict[Path, dict[str, str]]:
    """Return the values of the plan of each run, by its folder, that differ from other runs of its
    recipe or were set on the command line, by dotted path; none of an unreadable plan."""
    found: dict[Path, dict[str, str]] = {run.path: {} for run in runs}
    for recipe in {run.recipe for run in runs}:
        values = {run.path: _values(run.path) for run in runs if run.recipe == recipe}
        read = [mine for mine in values.values() if mine]
        differing = differing_paths(read) if read else []
        for path, mine in values.items():
            given = [name for name, side in mine.items() if side.origin.startswith(_GIVEN)]
            rehearsal = any(side.origin == REHEARSAL for side in mine.values())
            found[path] = ({"rehearse": "true"} if rehearsal else {}) | {
                name: shown_value(name.rpartition(".")[2], mine[name].value)
                for name in dict.fromkeys([*given, *differing])
                if name in mine
            }
    return found


def _values(run: Path) -> Mapping[str, ComparedValue]:
    try:
        plan = _read_plan(run, json.loads((run / PLAN_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
    return {} if plan is None else plan_values(plan)


def _read_plan(run: Path, data: object) -> Plan | None:
    """Return the plan in the JSON of a run; None if this version cannot read it."""
    try:
        return plan_from_file(data, run)[0]
    except (PlanFormatError, KeyError):  # KeyError: of a builtin that this version does not know
        return None
