"""A sweep as it runs: trials from a queue, several at once, until none is left or it has to end.

Each trial is a job in a thread with its own event loop, so that it computes what `rlc run` would.
One lock guards the queue and the journal.
"""

from __future__ import annotations

import asyncio
import json
import threading
import traceback
from collections import defaultdict, deque
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from rlc.compile import Sweep
from rlc.errors import Error
from rlc.plan import Configuration, Evaluation, Plan, Trial
from rlc.pricing import plan_cost
from rlc.runtime import (
    NOTHING,
    Job,
    Observer,
    RecordedUsage,
    Reuse,
    RunError,
    RunFolder,
    Summary,
    connect_run,
    find_reuse,
    is_run,
    read_run,
    require_prices,
    require_runnable,
)
from rlc.service import RemoteService, require_service
from rlc.sweeps.claims import CLAIMS_FILE, claim_dicts, concerning, verdicts
from rlc.sweeps.folder import (
    SweepFolder,
    create,
    own_stages,
    run_folders,
    shared_part,
    used_in,
    value_of,
    values_on_the_way,
)
from rlc.sweeps.journal import (
    MetricReport,
    SweepObserver,
    SweepSummary,
    ranked,
)
from rlc.sweeps.search import Halving, Proposal, propose
from rlc.sweeps.trials import COMPLETED, TrialRecord, TrialState


class JobStoppedError(Error):
    """A job was stopped at once, in the middle of a step."""


@define(eq=False)
class StoppableJob:
    """Runs a job, which other threads can stop, even before it runs."""

    _lock: threading.Lock = field(factory=threading.Lock, init=False)
    _stopping: bool = field(default=False, init=False)
    _job: Job | None = field(default=None, init=False)
    _task: asyncio.Task[Any] | None = field(default=None, init=False)

    def stop(self) -> None:
        """End the job with a checkpoint after the running step."""
        with self._lock:
            self._stopping = True
            if self._job is not None:
                self._job.stop()

    def cancel(self) -> None:
        """End the job now; its newest checkpoint can be resumed."""
        self.stop()
        with self._lock:
            if self._task is not None:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def run(self, folder: RunFolder, base_url: str | None, observer: Observer) -> Summary:
        """Run what is left of the job of a folder. Raise JobStoppedError if it was cancelled."""
        service = connect_run(folder, base_url, resumed=True)
        try:
            job = Job(folder, service, observer)
            with self._lock:
                self._job = job
                if self._stopping:
                    job.stop()
            return asyncio.run(self._run(job))
        except asyncio.CancelledError as error:
            raise JobStoppedError("it was stopped at once") from error
        finally:
            with self._lock:
                self._job = self._task = None
            if not isinstance(service, RemoteService):  # the job closes that
                close: Any = getattr(service, "close", None)
                close()

    async def _run(self, job: Job) -> Summary:
        with self._lock:
            self._task = asyncio.current_task()
        return await job.run()


_IN_A_ROW = 3  # trials that fail one after the other before the sweep gives up
_REASONS = {"interrupted": "it was asked to stop", "budget": "the budget has no room for more"}


@define(eq=False)
class SweepRun:
    """Runs the rest of the sweep in a folder, ``jobs`` trials at once. :meth:`stop` ends it."""

    sweep: Sweep
    folder: SweepFolder
    base_url: str | None = None
    jobs: int = 1
    fresh: bool = False
    roots: tuple[Path, ...] = ()
    observer: SweepObserver = field(factory=SweepObserver)
    _lock: threading.RLock = field(factory=threading.RLock, init=False)
    _records: dict[str, TrialRecord] = field(factory=dict, init=False)  # by the trial's id
    _queue: deque[Trial] = field(factory=deque, init=False)
    _running: dict[str, StoppableJob] = field(factory=dict, init=False)
    _expected: dict[str, RecordedUsage] = field(factory=dict, init=False)  # of running trials
    _used: dict[Path, RecordedUsage] = field(factory=dict, init=False)  # by the folder of a run
    _sharing: defaultdict[Path, threading.Lock] = field(
        factory=lambda: defaultdict(threading.Lock), init=False
    )
    _halving: Halving | None = field(default=None, init=False)
    _ending: str = field(default="", init=False)  # why no other trial begins
    _cause: str = field(default="", init=False)
    _failed_in_a_row: int = field(default=0, init=False)
    _listed: tuple[Configuration, ...] = field(default=(), init=False)
    _decided: set[str] = field(factory=set, init=False)  # claims

    def stop(self) -> None:
        """End with a checkpoint of each running trial after its step."""
        self._end("interrupted")

    def cancel(self) -> None:
        """End now."""
        self._end("interrupted")
        for job in list(self._running.values()):
            job.cancel()

    def run(self) -> SweepSummary:
        """Run the trials that are left, and return the state of the sweep then."""
        self._prepare()
        self.folder.set_state("running")
        runs = self.sweep.size * len(self.sweep.seeds)
        self.observer.started(self.sweep.plan, runs, self.folder.path)
        for record in self._records.values():
            self.observer.trial(record)
        if any(claim.early for claim in self.sweep.plan.claims):
            self._queue_by_seed()
        with ThreadPoolExecutor(self.jobs, "rlc-trial") as pool:
            done, _ = wait([pool.submit(self._work) for _ in range(self.jobs)])
        for future in done:
            future.result()
        state = self._ending or "finished"
        cause = self._cause or _REASONS.get(state, "")
        self.folder.set_state(state, cause)
        trials = sorted(self._records.values(), key=lambda r: (r.trial.number, r.trial.seed))
        summary = SweepSummary(
            self.sweep.plan, state, cause, tuple(trials), self._spent.usd, self.folder.path
        )
        if summary.claims:
            text = json.dumps(claim_dicts(summary.claims), indent=2) + "\n"
            (self.folder.path / CLAIMS_FILE).write_text(text, encoding="utf-8")
        return summary

    def _prepare(self) -> None:
        """Read what the folder knows of the sweep, and queue the trials that were begun."""
        plan, journal = self.sweep.plan, self.folder.journal
        if plan.search.n is None:
            self._listed = tuple(islice(self.sweep.configurations(), self.sweep.size))
        if plan.search.eta is not None:
            self._halving = Halving(plan, journal.reports())
        for record in journal.trials():
            if record.state == "running":  # its process was killed
                record = evolve(record, state="interrupted")
            self._records[record.trial.id] = record
        for record in list(self._records.values()):
            if record.state not in COMPLETED or record.state == "decided":
                self._queue.append(record.trial)
            elif record.state == "finished":
                self._add(self._later_seeds(record.trial))
        for path in run_folders(self.folder.path):
            if is_run(path):
                self._used[path] = used_in(path)

    # The queue

    def _work(self) -> None:
        try:
            while (following := self._next()) is not None:
                self._run(*following)
        except BaseException as error:
            self._end("failed", str(error))
            raise

    def _next(self) -> tuple[Trial, Plan] | None:
        """Remove and return the next trial, with its plan; None if there is none to begin."""
        with self._lock:
            while not self._ending and (self._queue or self._propose()):
                trial = self._queue[0]
                if self._is_decided(trial):
                    self._queue.popleft()
                    self._record(trial, "decided")
                    continue
                try:
                    plan = self.sweep.plan_of(trial.configuration, trial.seed)
                    if self.sweep.plan.budget.usd is not None:
                        require_prices(plan_cost(plan), "the budget of the sweep")
                except Error as error:
                    self._queue.popleft()
                    self._record(trial, "failed", str(error))
                    continue
                expected = self._expected_of(trial, plan)
                if not self._committed.fits(self.sweep.plan.budget, expected):
                    self._end("budget")
                    return None
                self._queue.popleft()
                self._expected[trial.id] = expected
                self._running[trial.id] = StoppableJob()
                return trial, plan
        return None

    def _propose(self) -> bool:
        last = max((record.trial.number for record in self._records.values()), default=0)
        number, configuration = last + 1, None
        if number <= len(self._listed):
            configuration = self._listed[number - 1]
        elif number <= self.sweep.size and not self._listed:
            before = sorted(
                ranked(self.sweep.plan, self._records.values()), key=lambda result: result.number
            )
            known = [Proposal(r.configuration, r.mean if r.complete else None) for r in before]
            configuration = propose(self.sweep.plan, self.sweep.seed, number, known)
            if configuration is None:
                self.observer.note("every configuration that is sampled was tried before")
        if configuration is None:
            return False
        seeds = self.sweep.seeds[:1] if self._halving else self.sweep.seeds
        self._add([Trial(number, configuration, seed) for seed in seeds])
        return True

    def _queue_by_seed(self) -> None:
        """Queue all trials seed by seed: what is compared comes first."""
        numbered = list(enumerate(self._listed, 1))
        self._add([Trial(n, c, seed) for seed in self.sweep.seeds for n, c in numbered])
        self._queue = deque(sorted(self._queue, key=lambda trial: (trial.seed, trial.number)))
        self._decide()

    def _later_seeds(self, trial: Trial) -> list[Trial]:
        """Return the trials of a configuration that wait for the end of its first one."""
        if self._halving is None or trial.seed != self.sweep.seed:
            return []
        return [evolve(trial, seed=seed) for seed in self.sweep.seeds[1:]]

    def _add(self, trials: list[Trial]) -> None:
        new = [trial for trial in trials if trial.id not in self._records]
        self.folder.journal.add(new)
        for trial in new:
            self._records[trial.id] = TrialRecord(trial, "waiting", "", None)
            self._queue.append(trial)
            self.observer.trial(self._records[trial.id])

    def _record(
        self, trial: Trial, state: TrialState, cause: str = "", value: float | None = None
    ) -> None:
        self.folder.journal.set_state(trial, state, cause, value)
        self._records[trial.id] = record = TrialRecord(trial, state, cause, value)
        self.observer.trial(record)
        if state == "failed":
            self._failed_in_a_row += 1
            if self._failed_in_a_row >= _IN_A_ROW:
                self._end("failed", f"{_IN_A_ROW} trials failed one after the other: {cause}")
        elif state in COMPLETED:
            self._failed_in_a_row = 0
        if record.ended:
            self._decide()

    def _end(self, reason: str, cause: str = "") -> None:
        """Begin no other trial, and end those that run after their step."""
        with self._lock:
            if not self._ending:
                self._ending, self._cause = reason, cause
            for job in self._running.values():
                job.stop()

    # The budget

    @property
    def _spent(self) -> RecordedUsage:
        return sum(self._used.values(), NOTHING)

    @property
    def _committed(self) -> RecordedUsage:
        committed = self._spent
        for trial, expected in self._expected.items():
            path = self.folder.of_trial(self._records[trial].trial)
            committed += expected.less(self._used.get(path, NOTHING))
        return committed

    def _expected_of(self, trial: Trial, plan: Plan) -> RecordedUsage:
        """Return what a trial is expected to use from where it is, in an unknown time."""
        of = self.sweep.plan.of
        shared = shared_part(plan, of)
        done = shared is not None and is_run(self.folder.of_shared(shared))
        own = own_stages(plan, of)
        costs = [cost for cost in plan_cost(plan) if not done or cost.stage in own]
        usd = sum(cost.total("expected").usd for cost in costs)
        tokens = sum(cost.tokens("expected") for cost in costs)
        used = self._used.get(self.folder.of_trial(trial), NOTHING)
        return RecordedUsage(usd, round(tokens), 0.0).less(used)

    # A trial

    def _run(self, trial: Trial, plan: Plan) -> None:
        job = self._running[trial.id]
        with self._lock:
            self._record(trial, "running")
        state: TrialState
        try:
            state, cause, value = self._run_job(trial, plan, job)
        except JobStoppedError as error:
            state, cause, value = "interrupted", str(error), None
        except Error as error:
            state, cause, value = "failed", error.message, None
        except Exception as error:  # a mistake in rlc, or in its input: that of one trial
            state, cause, value = "failed", f"{type(error).__name__}: {error}", None
            path = self.folder.path / f"{self.folder.of_trial(trial).name}.crash.log"
            path.write_text(traceback.format_exc(), encoding="utf-8")
        with self._lock:
            del self._running[trial.id], self._expected[trial.id]
            self._record(trial, state, cause, value)
            if state == "finished":
                self._add(self._later_seeds(trial))

    def _run_job(
        self, trial: Trial, plan: Plan, job: StoppableJob
    ) -> tuple[TrialState, str, float | None]:
        """Run a trial, and return how it ended, why, and its value."""
        of, metric = self.sweep.plan.of, self.sweep.plan.metric
        with closing(self._open(trial, plan, job)) as folder:
            for step, value in values_on_the_way(folder.journal, metric):
                self._measured(trial, plan, step, value)
            if self._is_pruned(trial):
                return "pruned", "", None
            watcher = _Watcher(self, folder, trial)
            summary = job.run(folder, self.base_url, watcher)
            result = value_of(folder.journal, metric, plan, of)
        if summary.state == "finished":
            if result is None:
                return "failed", f"it ended without a {metric.name}", None
            unmet = (f"expected {one.text}: {one.said}" for one in summary.unmet)
            return "finished", "; ".join(unmet), result
        if summary.state == "interrupted":
            if self._is_pruned(trial):
                return "pruned", "", None
            if self._is_decided(trial):
                return "decided", "", None
            return ("budget" if self._ending == "budget" else "interrupted"), "", None
        how = "at the budget of its stage" if summary.state == "budget" else summary.state
        return "failed", f"it ended {how}: {summary.cause}", None

    def _open(self, trial: Trial, plan: Plan, job: StoppableJob) -> RunFolder:
        """Open the run folder of a trial, in which the stages that it shares are done."""
        path = self.folder.of_trial(trial)
        if not is_run(path):
            require_runnable(plan)
            require_service(plan, self.base_url)
            shared = shared_part(plan, self.sweep.plan.of)
            names = [] if shared is None else [stage.name for stage in shared.stages]
            done = None if shared is None else self._run_shared(trial, shared, job)
            create(path, plan, done, self._reuse(plan), names)
        return RunFolder.resume(path)

    def _reuse(self, plan: Plan) -> Reuse:
        """Return what other runs, and other trials, have done of a plan."""
        return find_reuse(plan, self.roots, self.base_url, self.fresh)

    def _run_shared(self, trial: Trial, plan: Plan, job: StoppableJob) -> Path:
        """Run shared stages, unless another trial has; return their run folder."""
        path = self.folder.of_shared(plan)
        with self._lock:
            lock = self._sharing[path]
        with lock:
            if not is_run(path):
                create(path, plan, None, self._reuse(plan))
            elif read_run(path).state == "finished":
                return path
            with closing(RunFolder.resume(path)) as folder:
                watcher = _Watcher(self, folder, trial)
                summary = job.run(folder, self.base_url, watcher)
        if summary.state == "interrupted":
            raise JobStoppedError("it was asked to stop")
        if summary.state != "finished":
            raise RunError(f"the stages before it ended: {summary.cause or summary.state}")
        return path

    # What a trial reports

    def stepped(self, trial: Trial, folder: RunFolder, metrics: Mapping[str, Any]) -> None:
        """Count what a step took, and end the sweep if there is no room for another like it."""
        stage, step, journal = metrics["stage"], metrics["step"], folder.journal
        with self._lock:
            stages = [planned.name for planned in folder.plan.stages]
            self._used[folder.path] = sum(map(journal.used, stages), NOTHING)
            self.observer.spent(self._spent.usd)
            if not self._spent.fits(self.sweep.plan.budget, journal.used(stage, step)):
                self._end("budget")
            for planned in folder.plan.trainings:
                if planned.name == stage:
                    self.observer.step(trial, stage, step, planned.steps, metrics)
            metric = self.sweep.plan.metric
            if stage == metric.stage and metric.key in metrics:
                self._measured(trial, folder.plan, step, float(metrics[metric.key]))

    def _measured(self, trial: Trial, plan: Plan, step: int, value: float) -> None:
        """Report a trial's metric, and end it if others did better after as many steps."""
        with self._lock:
            self.observer.measured(trial, step, value)
            if self._halving is None or trial.seed != self.sweep.seed:
                return
            of = next((s for s in plan.trainings if s.name == self.sweep.plan.of), None)
            if of is not None and 0 < step < of.steps:
                report = MetricReport(trial.number, step, value)
                if self.folder.journal.report(report) and not self._halving.goes_on(report):
                    self._running[trial.id].stop()

    def _is_pruned(self, trial: Trial) -> bool:
        ended = self._halving.ended if self._halving else set()
        return trial.number in ended and trial.seed == self.sweep.seed

    def _decide(self) -> None:
        """Look at the claims, and end the trials that none of them needs any more."""
        again = {*(trial.id for trial in self._queue), *self._running}  # what failed, with others
        found = verdicts(self.sweep.plan, self._records.values(), again)
        new = {r.plan.name: r for r in found if r.plan.early and r.verdict != "cannot tell"}
        for name in new.keys() - self._decided:
            self.observer.note(new[name].lines[0])
        self._decided = {*new}
        for id_, job in self._running.items():
            if self._is_decided(self._records[id_].trial):
                job.stop()

    def _is_decided(self, trial: Trial) -> bool:
        """Return whether a trial is of a configuration whose claims are all decided."""
        claims = concerning(self.sweep.plan.claims, trial.configuration)
        return bool(claims) and self._decided.issuperset(claim.name for claim in claims)


class _Watcher(Observer):
    """Hands on what the run of a trial reports, on its thread."""

    def __init__(self, run: SweepRun, folder: RunFolder, trial: Trial) -> None:
        self._run, self._folder, self._trial = run, folder, trial

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._run.stepped(self._trial, self._folder, metrics)

    def evaluated(self, plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> None:  # noqa: ARG002
        self.step(step, metrics)

    def note(self, text: str) -> None:
        self._run.observer.note(f"trial {self._trial.number}, seed {self._trial.seed}: {text}")
