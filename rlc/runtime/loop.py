"""The steps of one training stage: run, journalled, accounted for, evaluated, until it ends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field

from rlc.plan.records import SftPlan, TrainPlan
from rlc.runtime.concurrency import in_thread
from rlc.runtime.gc_tuning import short_gc_pauses
from rlc.runtime.graph import StepOutcome, run_steps
from rlc.runtime.guard.limits import StageGuard
from rlc.runtime.guard.meter import Meter, cost
from rlc.runtime.guard.service_wrappers import WatchedServiceClient
from rlc.runtime.guard.watchdog import StepDeadline
from rlc.runtime.journal.checkpoints import CheckpointKeeper, PendingCheckpoint
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import ROLLOUTS_FILE, time_metrics, usage_metrics
from rlc.runtime.journal.timeline import TIMELINE_FILE, Timeline
from rlc.runtime.observer import Observer
from rlc.runtime.records import RunError
from rlc.runtime.stages.base import Stage, StepReport
from rlc.runtime.trackers.tracking import MetricsLog


@define(eq=False)
class StageLoop:
    """Drives the work of a stage. ``over_budget`` says that it ended at its budget.

    ``evaluate`` is called with the number of each step that is done, and before the first.
    """

    folder: RunFolder
    service: WatchedServiceClient
    observer: Observer
    log: MetricsLog
    stage: TrainPlan | SftPlan
    work: Stage
    meter: Meter
    states: CheckpointKeeper
    reference_meter: Meter | None  # of a reference model, which has a price of its own
    stop_requested: Callable[[], bool]
    evaluate: Callable[[int], Awaitable[None]]
    over_budget: bool = field(default=False, init=False)
    _since: float = field(factory=time.perf_counter, init=False)
    _timeline: Timeline = field(init=False)
    _guard: StageGuard = field(init=False)
    _failure: RunError | None = field(default=None, init=False)  # that the run ends with
    _deadline: StepDeadline = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._timeline = Timeline(self.stage.name)
        self._guard = StageGuard(self.stage)
        self._deadline = StepDeadline(self.stage, self.service.watchdog.owed)

    async def run(self, done: int) -> None:
        """Run the steps after ``done``, to the end of the stage or of its budget.

        Raises RunError where its steps fail, or take too long.
        """
        self._guard.replay(step.metrics for step in self.folder.journal.steps(self.stage.name))
        async with self._deadline.held():
            with short_gc_pauses():
                await self._run(done)
        if self._failure is not None:
            raise self._failure

    async def _run(self, done: int) -> None:
        await self._after_step(done)
        if self.over_budget or self.stop_requested():
            return
        try:
            await run_steps(
                self.folder.plan.graph,
                self.stage.name,
                self.work.functions(),
                range(done + 1, self.stage.steps + 1),
                begin=self._begin,
                known=self.folder.journal.sources(self.stage.name),
                settle=self.states.settle,
                on_span=self._timeline.add,
                overlapping=lambda: not self._guard.synchronous,
                commit=self._commit,
            )
            await self.states.settle()
        except Exception:
            await self.states.end()
            raise
        finally:
            self.record_usage()

    def _begin(self, step: int, source: int) -> None:
        self.folder.journal.start_step(self.stage.name, step, source)

    def record_usage(self) -> None:
        """Write down the tokens that steps under way have used so far."""
        for step, usage in self.work.usage.items():
            self.meter.record(step, usage)
        if self.reference_meter is not None:
            for step, usage in self.work.reference_usage.items():
                self.reference_meter.record(step, usage)

    async def _commit(self, step: int, outcome: StepOutcome) -> bool:
        """Rollouts, then the journal, then the metrics: what a crash leaves of a step that is
        not journalled is dropped on resume, and the metrics are made again from the journal."""
        report = await self.work.report(step, outcome)
        self.record_usage()
        usage, reference = self.work.usage.pop(step), self.work.reference_usage.pop(step, None)
        seconds = time.perf_counter() - self._since
        metrics: dict[str, Any] = {"stage": self.stage.name, "step": step, **report.metrics}
        metrics |= usage_metrics(usage) | time_metrics(outcome.seconds, seconds)
        if reference is not None:
            metrics["tokens/reference"] = reference.prefill
        if cost(self.stage.model, usage) is not None:
            metrics["spend/usd"] = self.folder.journal.spent_usd()
        metrics |= self.service.metrics()
        verdict = self._guard.review(step, metrics, _first_cause(report))
        metrics |= verdict.metrics
        await in_thread(self.folder.append, ROLLOUTS_FILE, report.rollouts)
        self.folder.append(TIMELINE_FILE, self._timeline.take(step))
        self.folder.journal.finish_step(self.stage.name, step, report.cursor, metrics)
        self.states.keep(step, report.checkpoint)
        self.log.write(metrics, report.rollouts)
        self.observer.step(step, metrics)
        for text in verdict.notes:
            self.observer.note(text)
        self._failure = None if verdict.end is None else RunError(verdict.end)
        if self._failure is None:
            await self._after_step(step)
        ending = self.over_budget or self.stop_requested() or self._failure is not None
        if ending:
            await self._save_for_good(step, report.checkpoint)
        return not ending

    async def _save_for_good(self, step: int, made: PendingCheckpoint | None) -> None:
        """The state of a run that ends here, for as long as the plan keeps checkpoints."""
        await self.states.settle()
        if made is None or not made.lasting:
            path = await self.work.weights.save(step)
            self.folder.journal.add_checkpoint(self.stage.name, step, path)

    async def _after_step(self, step: int) -> None:
        self.over_budget = step < self.stage.steps and not self._fits_another(step)
        self._deadline.stop()  # an evaluation is no part of a step
        await self.evaluate(step)
        self._since = time.perf_counter()
        self._deadline.start()

    def _fits_another(self, step: int) -> bool:
        """Whether the budget has room for one more step like the last."""
        journal, name = self.folder.journal, self.stage.name
        last = journal.used(name, step)
        return step == 0 or journal.used(name).fits(self.stage.budget, last)


def _first_cause(report: StepReport) -> str | None:
    """What the first rollout failed of, of those that did."""
    return next((record["error"] for record in report.rollouts if record["error"]), None)
