"""Stages that trials have in common: run once, and handed on with their journal and checkpoints.

A trial's folder then looks as if it had run these stages itself, and its plan is whole: it can be
gone on with, looked at and reported like any other run. What they cost stays where they ran.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from attrs import evolve

from rlc.plan import JOURNAL_FILE, LOCAL, Plan, build_graph
from rlc.runtime import FAILURES_FILE, ROLLOUTS_FILE, TIMELINE_FILE, TOKENS_FILE, RunFolder

CHECKPOINTS = "checkpoints"


def shared_part(plan: Plan, of: str) -> Plan | None:
    """Return the plan of the stages before the one that is tried; None if there are none. What is
    expected is held of the whole trial."""
    stages = tuple(s for s in plan.trainings if s.name != of)
    if not stages:
        return None
    names = tuple(f"stages.{stage.name}." for stage in stages)
    origins = {k: v for k, v in plan.provenance.items() if k == "seed" or k.startswith(names)}
    graph = build_graph(stages)
    return evolve(plan, stages=stages, graph=graph, provenance=origins, expectations=())


def create(path: Path, plan: Plan, shared: Path | None, names: Sequence[str] = ()) -> None:
    """Make the run folder of a trial; with ``shared`` its stages ``names`` are done in it, as in
    the finished run there. It appears at once and whole, whatever happens on the way."""
    partial = path.with_name(f".{path.name}.new")
    shutil.rmtree(partial, ignore_errors=True)
    with closing(RunFolder.create(partial, plan)) as folder:
        if shared is not None:
            folder.journal.take(shared / JOURNAL_FILE, names)
            _copy_files(shared, partial, plan)
    partial.rename(path)


def _copy_files(shared: Path, path: Path, plan: Plan) -> None:
    for name in (ROLLOUTS_FILE, TOKENS_FILE, TIMELINE_FILE, FAILURES_FILE):
        if (shared / name).exists():
            shutil.copyfile(shared / name, path / name)
    if plan.stages[0].model.service == LOCAL:  # a service keeps its own checkpoints
        shutil.copytree(shared / CHECKPOINTS, path / CHECKPOINTS)


def own_stages(plan: Plan, of: str) -> Sequence[str]:
    """The names of the stages that a trial runs itself."""
    return [s.name for s in plan.stages if s.name == of or not s.trains]
