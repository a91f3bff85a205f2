"""The steps of one training stage: run, journalled, accounted for and evaluated until it ends."""

from __future__ import annotations

import time
from typing import Any

from attrs import define, field

from rlc.plan import Training
from rlc.runtime.concurrency import in_thread
from rlc.runtime.gc_tuning import short_gc_pauses
from rlc.runtime.graph import StepOutcome, run_steps
from rlc.runtime.guard.limits import StageGuard
from rlc.runtime.guard.service_guard import ServiceGuard
from rlc.runtime.guard.watchdog import StepDeadline
from rlc.runtime.journal.checkpoints import CheckpointKeeper
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.meter import cost
from rlc.runtime.journal.metrics import COMPARISONS_FILE, ROLLOUTS_FILE, usage_metrics
from rlc.runtime.journal.timeline import TIMELINE_FILE, Timeline
from rlc.runtime.journal.tokens import append_tokens, first_groups
from rlc.runtime.observer import Observer
from rlc.runtime.records import RunError
from rlc.runtime.stages.base import Stage
from rlc.runtime.stages.evaluation import EvaluationRunner
from rlc.runtime.trackers import MetricsLog


@define(eq=False)
class StageLoop:
    """Runs the steps of a stage.

    ``over_budget`` is True once the stage has ended at its budget.
    """

    folder: RunFolder
    service: ServiceGuard
    observer: Observer
    log: MetricsLog
    plan: Training
    stage: Stage[Any]
    checkpoints: CheckpointKeeper
    evaluator: EvaluationRunner
    over_budget: bool = field(default=False, init=False)
    _step_began: float = field(factory=time.perf_counter, init=False)
    _timeline: Timeline = field(init=False)
    _guard: StageGuard = field(init=False)
    _deadline: StepDeadline = field(init=False)
    _failure: RunError | None = field(default=None, init=False)  # that the run ends with

    def __attrs_post_init__(self) -> None:
        self._timeline = Timeline(self.plan.name)
        self._guard = StageGuard(self.plan)
        self._deadline = StepDeadline(self.plan, self.service.watchdog.owed)

    async def run(self, done: int) -> None:
        """Run the steps after ``done``, to the end of the stage or of its budget.

        Raise RunError if too many of its rollouts fail, or a step takes too long.
        """
        self._guard.replay(step.metrics for step in self.folder.journal.steps(self.plan.name))
        async with self._deadline.held():
            with short_gc_pauses():
                await self._run(done)
        if self._failure is not None:
            raise self._failure

    async def _run(self, done: int) -> None:
        await self._after_step(done)
        if self._ending:
            return
        journal, name = self.folder.journal, self.plan.name
        try:
            await run_steps(
                self.folder.plan.graph,
                name,
                self.stage.functions(),
                range(done + 1, self.plan.steps + 1),
                begin=lambda step, source: journal.start_step(name, step, source),
                known=journal.sources(name),
                settle=self.checkpoints.settle,
                on_span=self._timeline.add,
                overlapping=lambda: not self._guard.synchronous,
                commit=self._commit,
            )
            await self.checkpoints.settle()
        except Exception:
            await self.checkpoints.abandon()
            raise
        finally:
            self.stage.record_usage()

    async def _commit(self, step: int, outcome: StepOutcome) -> bool:
        """Write a finished step down, and return whether the stage goes on.

        First the tokens and the rollouts, then the journal, then the metrics: a resume drops what a
        crash left of a step that is not journalled, and writes the metrics again from the journal.
        """
        report = await self.stage.report(step, outcome)
        usage = self.stage.meter.finish(step)
        times = {"total": time.perf_counter() - self._step_began, **outcome.seconds}
        metrics: dict[str, Any] = {"stage": self.plan.name, "step": step, **report.metrics}
        metrics |= usage_metrics(usage) | {f"time/{kind}": took for kind, took in times.items()}
        for scorer, scorers in self.stage.scorers.items():
            metrics[f"tokens/{scorer}"] = scorers.finish(step)
        if cost(self.plan.model, usage) is not None:
            metrics["spend/usd"] = self.folder.journal.spent_usd()
        metrics |= self.service.metrics()
        first = str(report.failures[0]) if report.failures else None
        decision = self._guard.review(step, metrics, first)
        metrics |= decision.metrics
        self.folder.keep_failures(report.failures, self.plan.name, step)
        kept = first_groups(report.tokens, self.folder.kept_tokens)
        await in_thread(append_tokens, self.folder.path, self.plan.name, step, kept)
        await in_thread(self.folder.append, ROLLOUTS_FILE, report.rollouts)
        if report.comparisons:
            self.folder.append(COMPARISONS_FILE, report.comparisons)
        self.folder.append(TIMELINE_FILE, self._timeline.take(step))
        self.folder.journal.finish_step(self.plan.name, step, report.cursor, metrics)
        self.checkpoints.keep(step, report.checkpoint)
        self.log.write(metrics, report.rollouts)
        if report.lesson is not None:
            self.observer.learnt(report.lesson)
        self.observer.step(step, metrics)
        for text in decision.notes:
            self.observer.note(text)
        self._failure = None if decision.end is None else RunError(decision.end)
        if self._failure is None:
            await self._after_step(step)
        if not self._ending:
            return True
        await self.checkpoints.settle()
        if report.checkpoint is None or not report.checkpoint.lasting:
            path = await self.stage.weights.save(step)  # for as long as the plan keeps checkpoints
            self.folder.journal.add_checkpoint(self.plan.name, step, path)
        return False

    @property
    def _ending(self) -> bool:
        stopping = self.stage.weights.stop_requested()
        return stopping or self.over_budget or self._failure is not None

    async def _after_step(self, step: int) -> None:
        """Evaluate if due; the time of the evaluation belongs to no step."""
        self._deadline.stop()
        if 0 < step < self.plan.steps:  # has the budget room for another step like the last?
            evaluations = self.evaluator.usual(self.plan, step)
            last = self.folder.journal.used(self.plan.name, step)
            self.over_budget = not self.evaluator.affords(self.plan, evaluations + last)
            if self.over_budget and not self.evaluator.affords(self.plan, evaluations):
                return
        await self.evaluator.run_due(self.stage.weights, step)
        self._step_began = time.perf_counter()
        self._deadline.start()
