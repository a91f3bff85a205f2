"""A new run begins with what others have done: files first, then the journal, all or nothing, so
that a process that dies in between leaves a run that computes everything itself."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from rlc.plan import JOURNAL_FILE, Plan, StagePlan, is_evaluation, is_training
from rlc.runtime.journal.database import Journal, TakenSteps
from rlc.runtime.journal.episodes import TOKENS_FILE, append_blocks
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import COMPARISONS_FILE, ROLLOUTS_FILE, TIMELINE_FILE, parse_line
from rlc.runtime.records import FAILURES_FILE, RunError
from rlc.runtime.reuse.identity import identities, needs_of
from rlc.runtime.reuse.index import (
    KEYS,
    STEPS,
    Keys,
    journalled_keys,
    keys_of,
    local_file,
)
from rlc.runtime.reuse.store import Reuse, ReusedStage, planned_evaluations

_BASE_URL = "reuse_base_url"  # in the meta of a journal
_BY_STEP = (ROLLOUTS_FILE, COMPARISONS_FILE, TIMELINE_FILE)


def begin_with(folder: RunFolder, reuse: Reuse) -> None:
    """Journal what the stages of a new run are, and take what other runs have done of them."""
    keys = keys_of(reuse.found)
    for part in reuse.parts:  # a sweep goes on with what it has, whatever has changed since
        theirs = journalled_keys(part.run).get(part.stage, {})
        if part.steps.steps and theirs.get(STEPS) != keys.get(part.stage, {}).get(STEPS):
            keys.pop(part.stage, None)
    known = json.dumps(_well_founded(keys, folder.recorded))
    folder.journal.set_meta(**{KEYS: known, _BASE_URL: reuse.base_url or ""})
    take(folder, reuse.parts)


def _well_founded(keys: Keys, plan: Plan) -> dict[str, Mapping[str, str]]:
    """Return the keys of stages without those that come of weights whose key is not among them."""
    left = dict(keys)
    for stage in plan.stages:
        if not left.keys() >= {*needs_of(stage)}:
            left.pop(stage.name, None)
    return left


def take(folder: RunFolder, parts: Collection[ReusedStage]) -> None:
    """Take parts of stages into a run folder in which nothing has begun yet."""
    taken = list[tuple[Path, TakenSteps]]()
    for part in parts:
        if take_files(folder, part):
            taken.append((part.run, part.steps))
    for run in dict.fromkeys(run for run, _ in taken):
        own = [steps for place, steps in taken if place == run]
        done = {(one.stage, step) for one in own for step in one.steps}
        for name in (*_BY_STEP, FAILURES_FILE):
            _append(run / name, folder.path / name, partial(_is_of, done=done))
        append_blocks(run / TOKENS_FILE, folder.path / TOKENS_FILE, done)
    for run in dict.fromkeys(run for run, _ in taken):
        folder.journal.take(run / JOURNAL_FILE, [steps for place, steps in taken if place == run])


def take_files(folder: RunFolder, part: ReusedStage) -> bool:
    """Take the states of a stage, and what was made for it. Return whether they are there: what has
    been deleted since it was found is computed anew."""
    try:
        with closing(Journal(part.run / JOURNAL_FILE, read_only=True)) as journal:
            known = journal.checkpoints(part.stage), journal.snapshots(part.stage)
        for saved, steps in zip(known, (part.steps.states, part.steps.snapshots), strict=True):
            if not saved.keys() >= {*steps}:
                return False
            for path in (saved[step] for step in steps):
                source, target = local_file(part.run, path), local_file(folder.path, path)
                if source is not None and target is not None:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    _link(source, target)
        for name in part.files:
            shutil.copyfile(part.run / name, folder.path / f"{name}.tmp")
            (folder.path / f"{name}.tmp").replace(folder.path / name)
    except (FileNotFoundError, RunError, sqlite3.Error):
        return False
    return True


def _link(source: Path, target: Path) -> None:
    """Give a file, which nobody changes, a second name; copy it where the disk is another."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _append(source: Path, target: Path, keeps: Callable[[str], bool]) -> None:
    if source.is_file():
        with (
            source.open(encoding="utf-8", errors="replace") as lines,
            target.open("a", encoding="utf-8") as kept,
        ):
            kept.writelines(line for line in lines if line.endswith("\n") and keeps(line))


def _is_of(line: str, done: Collection[tuple[str, int]]) -> bool:
    record = parse_line(line) or {}
    return (record.get("stage"), record.get("step")) in done


def still_known(
    folder: RunFolder, base_url: str | None = None, names: Iterable[str] | None = None
) -> None:
    """Forget the keys of stages that are not finished, and are not what they were when the run
    began: their code or data has changed, so what they compute is of two kinds. ``names``: of these
    stages, finished or not."""
    known = json.loads(folder.journal.meta(KEYS) or "{}")
    if not known:
        return
    server = base_url or folder.journal.meta(_BASE_URL) or None
    now = keys_of(identities(folder.recorded, server))
    looked_at = [
        stage.name
        for stage in folder.recorded.stages
        if (stage.name in names if names is not None else not _is_finished(folder, stage))
    ]
    left = {n: k for n, k in known.items() if n not in looked_at or now.get(n) == k}
    left = _well_founded(left, folder.recorded)  # what comes of two kinds of weights is of two
    if left != known:
        folder.journal.set_meta(**{KEYS: json.dumps(left)})


def _is_finished(folder: RunFolder, stage: StagePlan) -> bool:
    done = {one.step for one in folder.journal.steps(stage.name)}
    if is_evaluation(stage):
        return done >= planned_evaluations(stage, folder.recorded)
    return is_training(stage) and len(done) >= stage.steps
