"""The steps of one training stage: run, journalled, accounted for, evaluated, until it ends."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from attrs import define, field

from rlc.plan.tree import SftPlan, TrainPlan
from rlc.run.folder import RunFolder
from rlc.run.graph import StepOutcome, run_steps
from rlc.run.meter import Meter, cost
from rlc.run.metrics import ROLLOUTS_FILE, score, time_metrics, usage_metrics
from rlc.run.observer import Observer
from rlc.run.tracking import MetricsLog
from rlc.run.work import Work
from rlc.service.errors import ServiceError
from rlc.service.interface import ServiceClient


@define(eq=False)
class StageLoop:
    """Drives the work of a stage. ``over_budget`` says that it ended at its budget.

    ``evaluate`` is called with the number of each step that is done, and before the first.
    """

    folder: RunFolder
    service: ServiceClient
    observer: Observer
    log: MetricsLog
    stage: TrainPlan | SftPlan
    work: Work
    meter: Meter
    reference_meter: Meter | None  # of a reference model, which has a price of its own
    stop_requested: Callable[[], bool]
    evaluate: Callable[[int], Awaitable[None]]
    over_budget: bool = field(default=False, init=False)
    _since: float = field(factory=time.perf_counter, init=False)

    async def run(self, done: int) -> None:
        """Run the steps after ``done``, to the end of the stage or of its budget."""
        await self._after_step(done)
        if self.over_budget or self.stop_requested():
            return
        try:
            await run_steps(
                self.folder.plan.graph,
                self.stage.name,
                self.work.functions(),
                range(done + 1, self.stage.steps + 1),
                begin=lambda step: self.folder.journal.start_step(self.stage.name, step),
                is_checkpoint=self.work.weights.is_due,
                commit=self._commit,
            )
        finally:
            self.record_usage()

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
        report = self.work.report(step, outcome)
        self.record_usage()
        usage, reference = self.work.usage.pop(step), self.work.reference_usage.pop(step, None)
        seconds = time.perf_counter() - self._since
        metrics: dict[str, Any] = {"stage": self.stage.name, "step": step, **report.metrics}
        metrics |= usage_metrics(usage) | time_metrics(outcome.seconds, seconds)
        if reference is not None:
            metrics["tokens/reference"] = reference.prefill
        if cost(self.stage.model, usage) is not None:
            metrics["spend/usd"] = self.folder.journal.spent_usd()
        self.folder.append(ROLLOUTS_FILE, report.rollouts)
        journal = self.folder.journal
        journal.finish_step(self.stage.name, step, report.cursor, metrics, report.checkpoint)
        self.log.write(metrics)
        if report.checkpoint is not None:
            await self._retire_checkpoints()
        self.observer.step(step, metrics)
        await self._after_step(step)
        ending = self.over_budget or self.stop_requested()
        if ending and report.checkpoint is None:
            path = await self.work.weights.save(step)
            journal.add_checkpoint(self.stage.name, step, path)
        return not ending

    async def _after_step(self, step: int) -> None:
        self.over_budget = step < self.stage.steps and not self._fits_another(step)
        await self.evaluate(step)
        self._since = time.perf_counter()

    def _fits_another(self, step: int) -> bool:
        """Whether the budget has room for one more step like the last."""
        journal, name = self.folder.journal, self.stage.name
        last = journal.used(name, step)
        return step == 0 or journal.used(name).fits(self.stage.budget, last)

    async def _retire_checkpoints(self) -> None:
        """Delete all but the newest ``keep`` checkpoints, and the best where the plan says so.
        One that cannot be deleted now is tried again with the next: no reason to end a run."""
        journal, save = self.folder.journal, self.stage.save
        checkpoints = journal.checkpoints(self.stage.name)
        best = self._best([checkpoint.step for checkpoint in checkpoints]) if save.best else None
        for old in checkpoints[: -save.keep]:
            if old.step == best:
                continue
            try:
                await self.service.delete_checkpoint(old.path)
            except ServiceError as error:
                self.observer.note(f"{old.path} is not deleted yet: {error}")
                return
            journal.drop_checkpoint(self.stage.name, old.step)

    def _best(self, steps: list[int]) -> int:
        """The step with the best score; of equals the first."""
        done = self.folder.journal.steps(self.stage.name)
        scores = {stored.step: score(stored.metrics) for stored in done}
        return max(steps, key=lambda step: scores[step])
