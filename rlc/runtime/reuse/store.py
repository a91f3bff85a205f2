"""What a new run takes from earlier ones, found by key, and checked against their journals: states
that are there, and will be for a while, with all that the rest of the stage reads."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from attrs import define, evolve, field, frozen

from rlc.plan import (
    JOURNAL_FILE,
    Evaluation,
    Plan,
    StagePlan,
    Training,
    elapsed,
    in_dollars,
    is_evaluation,
    is_training,
)
from rlc.runtime.journal.database import PROBES, Journal, StoredStep, TakenSteps
from rlc.runtime.journal.folder import episodes_file, examples_file, is_locked
from rlc.runtime.journal.metrics import score
from rlc.runtime.records import RunError
from rlc.runtime.reuse.identity import Identity, identities, needs_of
from rlc.runtime.reuse.index import RUNS, STEPS, FinishedStage, local_file, offers
from rlc.runtime.weights import ROLLING_TTL, is_due, is_scored, max_lag, past_step, pasts_of

SHARED = "RLC_REUSE_FROM"  # folders of runs to take from, too
SHORTEST = 3_600  # seconds that a state on a service has to be there for at least
_SCORED = "heldout/"  # metrics of held-out data, which the last step of a stage has


@frozen
class ReusedStage:
    """What is taken of a stage: ``steps`` and the weights after them, or ``files`` alone, which are
    the examples that were made for it. ``planned`` is the number of its steps or evaluations."""

    stage: str
    run: Path
    steps: TakenSteps
    files: tuple[str, ...] = ()
    planned: int = 0
    evaluates: bool = False

    @property
    def whole(self) -> bool:
        """Return whether nothing is left to be done of the stage."""
        return bool(self.steps.steps) and len(self.steps.steps) == self.planned

    @property
    def kind(self) -> str:
        """Return what is taken: ``steps``, ``evaluations`` or ``examples``."""
        if not self.steps.steps:
            return "examples"
        return "evaluations" if self.evaluates else "steps"

    @property
    def text(self) -> str:
        """Return what is taken, from where, and what that saves."""
        last = max(self.steps.steps, default=0)
        if not self.steps.steps:
            what = f"the examples of `{self.stage}`"
        elif self.evaluates:
            count = len(self.steps.steps)
            times = f"{count:,} evaluation{'s' if count > 1 else ''}"
            what = f"{times} of `{self.stage}`"
        elif self.whole:
            what = f"{f'all {last:,} steps' if last > 1 else 'the only step'} of `{self.stage}`"
        else:
            first = f"first {last:,}" if last > 1 else "first"
            what = f"the {first} of {self.planned:,} steps of `{self.stage}`"
        return f"{what} from {self.run}, which saves {self.saved}"

    @property
    def saved(self) -> str:
        """Return dollars and time that they took, for people."""
        usd, seconds = self.steps.usd, self.steps.seconds
        priced = ["an unknown price"] if usd is None else [in_dollars(usd)] if usd else []
        return " and ".join([*priced, *([elapsed(seconds)] if seconds else [])] or ["nothing"])

    def as_data(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return {
            "stage": self.stage,
            "run": str(self.run),
            "what": self.kind,
            "steps": list(self.steps.steps),
            "planned": self.planned,
            "saved_usd": self.steps.usd,
            "saved_seconds": self.steps.seconds,
        }


@frozen
class Reuse:
    """What a plan takes from other runs, and what its stages are on a server, None for the usual
    one: ``found`` has their keys."""

    found: Mapping[str, Identity]
    base_url: str | None
    parts: tuple[ReusedStage, ...] = ()

    def whole(self, stage: str) -> bool:
        """Return whether all of a stage is taken."""
        return any(one.whole for one in self.parts if one.stage == stage)


def require_roots(roots: Iterable[Path]) -> None:
    """Raise RunError if one of the folders to take from is not there."""
    if lost := [str(root) for root in roots if not root.is_dir()]:
        raise RunError(f"there is no folder {', '.join(lost)} to take from", "mend --reuse-from")


def find_reuse(
    plan: Plan, roots: Iterable[Path] = (), base_url: str | None = None, fresh: bool = False
) -> Reuse:
    """Return what a run of a plan takes from the runs in ``runs``, in the folders of the variable
    RLC_REUSE_FROM and in ``roots``. Nothing if it is ``fresh`` or a rehearsal, which is there to
    try everything."""
    found = identities(plan, base_url)
    if fresh or plan.rehearses:
        return Reuse(found, base_url)
    known: dict[str, list[FinishedStage]] = {}
    shared = filter(None, os.environ.get(SHARED, "").split(os.pathsep))
    for root in dict.fromkeys([RUNS, *roots, *map(Path, shared)]):
        for key, some in offers(root).items():
            known.setdefault(key, []).extend(some)
    if not known:
        return Reuse(found, base_url)
    with closing(_Search(plan, found, known)) as search:
        return Reuse(found, base_url, tuple(search.parts()))


def whole_stages(plan: Plan, run: Path, names: Collection[str]) -> list[ReusedStage]:
    """Return stages that a run of exactly these has finished, whatever they depend on. Raise
    RunError if one is not there."""
    source = _Source.read(run)
    if source is None:
        raise RunError(f"{run} cannot be read")
    with closing(source.journal):
        found = [source.training(one) for one in plan.trainings if one.name in names]
    whole = [one for one in found if one is not None and one.whole]
    if len(whole) < len(names):
        raise RunError(f"{run} has not all that {', '.join(names)} left: a state of it is gone")
    return whole


def reused_by(plan: Plan, journal: Journal) -> list[ReusedStage]:
    """Return what a run has taken from others, as its journal says."""
    stages = {stage.name: stage for stage in plan.stages}
    found = []
    for one in journal.taken():
        stage = stages[one.stage]
        count = len(planned_evaluations(stage, plan)) if is_evaluation(stage) else stage.steps
        evaluates = not stage.trains
        found.append(ReusedStage(one.stage, Path(one.run), one, (), count or 0, evaluates))
    return found


@define(slots=False)
class _Search:
    plan: Plan
    found: Mapping[str, Identity]
    known: Mapping[str, Sequence[FinishedStage]]
    _chosen: dict[str, ReusedStage] = field(factory=dict)
    _sources: dict[Path, _Source | None] = field(factory=dict)

    def close(self) -> None:
        for source in filter(None, self._sources.values()):
            source.journal.close()

    def parts(self) -> Iterator[ReusedStage]:
        """Yield what is taken, in the order of the stages."""
        for stage in self.plan.stages:
            keys = self.found[stage.name]
            best: ReusedStage | None = None
            for _, source in self._offers(keys.steps, STEPS):
                one = self._steps(stage, source)
                best = max((best, one), key=_amount)
                if best is not None and best.whole:
                    break
            if best is not None:
                self._chosen[stage.name] = best
                yield best
            elif examples := self._examples(stage, keys):
                yield examples

    def _offers(self, key: str | None, kind: str) -> Iterator[tuple[FinishedStage, _Source]]:
        """Yield the runs that have a key, first those that have most of this plan: stages that go
        on from each other are best taken from one run."""
        mine = [one for one in self.known.get(key or "", ()) if one.kind == kind]
        mine.sort(key=lambda offer: -self._matches[offer.run])
        pairs = ((offer, self._source(offer.run)) for offer in mine)
        yield from ((offer, source) for offer, source in pairs if source is not None)

    @cached_property
    def _matches(self) -> Counter[Path]:
        """Return how many stages of this plan each run has."""
        keys = {one.steps for one in self.found.values()}
        return Counter(one.run for key in keys for one in self.known.get(key or "", ()))

    def _source(self, run: Path) -> _Source | None:
        if run not in self._sources:
            self._sources[run] = _Source.read(run)
        return self._sources[run]

    def _steps(self, stage: StagePlan, source: _Source) -> ReusedStage | None:
        if stage.model.hosted and not all(
            self._same(name, source, stage) for name in needs_of(stage)
        ):
            return None
        if is_evaluation(stage):
            return self._evaluations(stage, source)
        return source.training(stage) if is_training(stage) else None

    def _same(self, name: str, source: _Source, by: StagePlan) -> bool:
        """Return whether a stage that is taken has left the weights that it left in another run: on
        a service two runs of one plan do not compute the same."""
        (stage,) = (one for one in self.plan.trainings if one.name == name)
        chosen = self._chosen.get(name)
        if chosen is None or not (chosen.whole or (by.after == name and not by.trains)):
            return False
        if chosen.run == source.run:
            return True
        own = self._source(chosen.run)
        paths = {s and s.states(name).get(stage.steps, ("",))[0] for s in (own, source)}
        return len(paths) == 1 and bool(paths.pop())

    def _evaluations(self, stage: Evaluation, source: _Source) -> ReusedStage | None:
        """Return the evaluations that are due, of those steps alone that are taken, too."""
        planned = planned_evaluations(stage, self.plan)
        done = self._chosen.get(stage.after or "")
        last = max(done.steps.steps) if done is not None else 0
        if stage.after is not None and done is None:
            return None
        steps = [step for step in source.steps(stage.name) if step in planned and step <= last]
        if not steps or source.is_running:
            return None
        taken = source.taken(stage.name, steps)
        return ReusedStage(stage.name, source.run, taken, (), len(planned), True)

    def _examples(self, stage: StagePlan, keys: Identity) -> ReusedStage | None:
        """Return the examples alone, or as many of their episodes as there are."""
        files, run, usd = list[str](), None, 0.0
        for part, key in keys.examples.items():
            for offer, source in self._offers(key, f"examples{part}"):
                names = _made_files(stage.name, part)
                names = [one for one in names if (offer.run / one).is_file()]
                if names and not source.is_running and (run in (None, offer.run)):
                    files, run = [*files, *names], offer.run
                    usd = source.usd(stage.name, [PROBES]) or 0.0
                    break
        if run is None:
            return None
        nothing = TakenSteps(stage.name, str(run), (), usd=usd)
        return ReusedStage(stage.name, run, nothing, tuple(files), stage.steps or 0)


def _amount(one: ReusedStage | None) -> int:
    return 0 if one is None else len(one.steps.steps)


def _made_files(stage: str, part: str = "") -> list[str]:
    """Return the files of a run folder with what was made for a stage."""
    return [f"examples-{stage}{part}.jsonl", episodes_file(f"{stage}{part}")]


def planned_evaluations(stage: Evaluation, plan: Plan) -> set[int]:
    """Return the steps of the stage that is evaluated after which it is; 0: before the first."""
    steps = next((one.steps for one in plan.trainings if one.name == stage.after), None)
    if steps is None:
        return {0}
    between = range(stage.every, steps, stage.every) if stage.every else ()
    return {*([0] if stage.first else []), *between, steps}


@frozen(eq=False)
class _Source:
    """A run that may be taken from, as it is now."""

    run: Path
    journal: Journal
    plan: Mapping[str, Mapping[str, Any]]  # the stages in its JSON, by name
    is_running: bool
    _kept: dict[str, Any] = field(factory=dict)

    @classmethod
    def read(cls, run: Path) -> _Source | None:
        """Return the run of a folder; None if it cannot be read."""
        try:
            journal = Journal(run / JOURNAL_FILE, read_only=True)
            stages = json.loads(journal.meta("plan") or "")["stages"]
            return cls(run, journal, {one["name"]: one for one in stages}, is_locked(run))
        except (sqlite3.Error, RunError, ValueError, TypeError, KeyError, OSError):
            return None

    def _once(self, key: str, read: Callable[[], Any]) -> Any:
        if key not in self._kept:
            self._kept[key] = read()
        return self._kept[key]

    def steps(self, stage: str) -> dict[int, StoredStep]:
        read = self.journal.steps
        found: dict[int, StoredStep] = self._once(
            f"steps {stage}", lambda: {one.step: one for one in read(stage)}
        )
        return found

    def states(self, stage: str) -> dict[int, tuple[str, float]]:
        return self._weights("checkpoints", stage)

    def _weights(
        self, table: Literal["checkpoints", "snapshots"], stage: str
    ) -> dict[int, tuple[str, float]]:
        found: dict[int, tuple[str, float]] = self._once(
            f"{table} {stage}", lambda: self._there(table, stage)
        )
        return found

    def _there(
        self, table: Literal["checkpoints", "snapshots"], stage: str
    ) -> dict[int, tuple[str, float]]:
        """Return the weights that are there still, and not only until the running process has newer
        ones."""
        plan, found = self.plan[stage], {}
        for step, (path, created) in self.journal.weights(table, stage).items():
            save, lasting = plan["save"], table == "checkpoints" and self._is_lasting(plan, step)
            ttl = save.get("ttl_seconds")
            if not lasting and "://" in path and not path.startswith("local://"):
                ttl = ROLLING_TTL if ttl is None else min(ttl, ROLLING_TTL)
            expired = ttl is not None and created + ttl < time.time() + min(SHORTEST, ttl / 2)
            file = local_file(self.run, path)
            gone = file is not None and not file.is_file()
            if not (expired or gone or (self.is_running and step != plan["steps"])):
                found[step] = path, created
        return found

    @staticmethod
    def _is_lasting(plan: Mapping[str, Any], step: int) -> bool:
        every = plan["save"].get("every")
        return step == plan["steps"] or (every is not None and step % every == 0)

    def training(self, stage: Training) -> ReusedStage | None:
        """Return the most steps of a stage that can be gone on from."""
        for last in sorted(self.states(stage.name), reverse=True):
            if last <= stage.steps and self._goes_on(stage, last):
                break
        else:
            return None
        steps = range(1, last + 1)
        scored = stage.heldout is not None and not is_scored(stage, last)
        left_out = [n for n in self.steps(stage.name)[last].metrics if n.startswith(_SCORED)]
        taken = evolve(
            self.taken(stage.name, steps, *(self._saved(stage, last))),
            left_out=tuple(left_out) if scored else (),
        )
        files = [*_made_files(stage.name), *_made_files(stage.name, "-heldout")]
        there = [f for f in (*files, f"reference-{stage.name}.jsonl") if (self.run / f).is_file()]
        return ReusedStage(stage.name, self.run, taken, tuple(there), stage.steps)

    def _goes_on(self, stage: Training, last: int) -> bool:
        """Return whether a run can go on after a step, or end with it, as if the steps were its
        own: with all states that it keeps, and the examples and weights that later steps read."""
        steps, states = self.steps(stage.name), self.states(stage.name)
        if any(step not in steps for step in range(1, last + 1)):
            return False
        due = [step for step in range(1, stage.steps + 1) if is_due(stage, step)]
        kept = {step for step in due[-stage.save.keep :] if step <= last}
        if stage.save.best and (known := [step for step in due if step <= last]):
            kept.add(max(known, key=lambda step: score(stage, steps[step].metrics)))
        if not kept <= states.keys():
            return False
        if last == stage.steps:
            unscored = not any(name.startswith(_SCORED) for name in steps[last].metrics)
            return not (stage.heldout is not None and unscored)
        if any(not (self.run / examples_file(stage, data)).is_file() for data in stage.data):
            return False
        return self._read_later(stage, last) <= self._weights("snapshots", stage.name).keys()

    def _read_later(self, stage: Training, last: int) -> set[int]:
        """Return the steps before the last whose weights later ones sample from or play against."""
        lag = max_lag(stage)
        pasts = {
            past_step(step, every)
            for every in pasts_of(stage)
            for step in range(max(0, last - lag), last + 1)
        }
        return {step for step in {*range(max(0, last - lag), last), *pasts} if step < last}

    def _saved(self, stage: Training, last: int) -> tuple[list[int], list[int]]:
        states = [step for step in self.states(stage.name) if step <= last]
        whole = last == stage.steps
        snapshots = [] if whole else [*self._weights("snapshots", stage.name)]
        return states, [step for step in snapshots if step <= last]

    def taken(
        self,
        stage: str,
        steps: Collection[int],
        states: Sequence[int] = (),
        snapshots: Sequence[int] = (),
    ) -> TakenSteps:
        """Return steps of a stage as they are taken, with what they took here, or before."""
        paths = [self.states(stage)[step][0] for step in states] if states else []
        paths += [self._weights("snapshots", stage)[step][0] for step in snapshots]
        found = self.steps(stage)
        seconds = sum(float(found[step].metrics.get("time/total") or 0.0) for step in steps)
        foreign = tuple(path for path in paths if local_file(self.run, path) is None)
        return TakenSteps(
            stage,
            str(self.run),
            tuple(sorted(steps)),
            tuple(states),
            tuple(snapshots),
            self.usd(stage, [PROBES, *steps]),
            seconds,
            foreign=foreign,
        )

    def usd(self, stage: str, steps: Collection[int]) -> float | None:
        """Return what steps have cost, here or where they were taken from; None if unknown."""
        own = self.journal.cost_of(stage, steps)
        known = [one for one in self.journal.taken() if one.stage == stage]
        shares = [
            None if one.usd is None else one.usd * len({*steps} & {*one.steps}) / len(one.steps)
            for one in known
        ]
        if own is None or None in shares:
            return None
        return own + sum(share for share in shares if share is not None)
