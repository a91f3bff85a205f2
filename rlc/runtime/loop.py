"""The steps of one training stage: run, journalled, accounted for and evaluated until it ends."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from rlc.plan import GiveUpPlan, Training
from rlc.runtime.concurrency import in_thread, short_gc_pauses
from rlc.runtime.graph import StepOutcome, run_steps
from rlc.runtime.journal.episodes import append_tokens, first_groups
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import (
    COMPARISONS_FILE,
    ROLLOUTS_FILE,
    TIMELINE_FILE,
    Timeline,
    usage_metrics,
)
from rlc.runtime.records import RunError
from rlc.runtime.service_guard import ServiceGuard, StepDeadline
from rlc.runtime.stages.base import Stage
from rlc.runtime.stages.evaluation import EvaluationRunner
from rlc.runtime.summary import Observer
from rlc.runtime.trackers import MetricsLog
from rlc.runtime.weights import CheckpointKeeper

KL = "kl/sample_train_k2"
SYNCHRONOUS = "guard/synchronous"
_NO_REWARD = "no episode had a reward"


def made_update(metrics: Mapping[str, Any]) -> bool:
    """Return whether a step changed the weights."""
    return not metrics.get("optim/skipped", 0.0)


def why_nothing_learnt(
    stage: Training, steps: Sequence[Mapping[str, Any]], rehearses: bool, first_failure: str | None
) -> str:
    """Return why no step changed the weights; empty if one did, or a rehearsal had rewards."""
    rewarded = any("reward/mean" in step for step in steps)
    if not steps or any(map(made_update, steps)) or (rehearses and rewarded):
        return ""
    failed, played = (
        int(sum(step.get(f"rollouts/{kind}", 0) for step in steps)) for kind in ("failed", "played")
    )
    reasons = []
    if failed:
        share = f"{failed:,} of {failed + played:,}" if played else f"all {failed:,}"
        reasons.append(f"{share} rollouts failed, the first with {first_failure}")
    if played:
        reasons.append("no group was left with rewards that differ" if rewarded else _NO_REWARD)
    several = f"none of the {len(steps):,} steps of `{stage.name}` changed its weights"
    one = f"the one step of `{stage.name}` changed no weights"
    return f"{several if len(steps) > 1 else one}: {'; '.join(reasons)}"


@frozen
class Decision:
    """The decision after a step; ``end`` is a reason to end the run, or None. ``metrics`` are
    stored with those of the step, for a resumed run."""

    notes: tuple[str, ...] = ()
    end: str | None = None
    metrics: Mapping[str, float] = field(factory=dict)


@define
class StageGuard:
    """Reviews the steps of a stage in order."""

    stage: Training
    synchronous: bool = False  # whether steps no longer overlap
    _above: bool = False  # whether the last known KL exceeded the guard's
    _failed: int = 0  # consecutive steps in which too many rollouts failed
    _unusable: bool = False  # whether no rollout of the last step could be used

    def replay(self, done: Iterable[Mapping[str, Any]]) -> None:
        """Restore the decisions of the steps before a resume, but forget their failures."""
        for metrics in done:
            self._above = self._is_above(metrics)
            self.synchronous = bool(metrics.get(SYNCHRONOUS, self.synchronous))

    def review(self, step: int, metrics: Mapping[str, Any], cause: str | None) -> Decision:
        """Return the decision on a step by its metrics; ``cause`` is its first failure."""
        rollouts = self.stage.rollouts
        if rollouts is None:
            return Decision()
        notes, end = list[str](), self._too_many_failures(rollouts.give_up, metrics, cause)
        was_unusable, self._unusable = self._unusable, "reward/mean" not in metrics
        # If rollouts were usable but equally good, the line of each such step says so.
        if self._unusable and not was_unusable:
            why = f"no rollout could be used; the first cause: {cause or _NO_REWARD}"
            notes.append(f"step {step} changes no weights: {why}")
        was_above, self._above = self._above, self._is_above(metrics)
        guard = rollouts.kl_guard
        if guard is None:
            return Decision(tuple(notes), end)
        if self._above and not was_above:
            text = (
                f"in step {step} trainer and sampler are {float(metrics[KL]):.3g} nats a token "
                f"apart, above the {guard.max:g} of kl_guard"
            )
            if guard.then == "stop":
                end = end or text
            elif guard.then == "synchronous" and not self.synchronous:
                self.synchronous = True
                notes.append(text + ": from here on steps are synchronous")
            else:
                notes.append(text)
        return Decision(tuple(notes), end, {SYNCHRONOUS: float(self.synchronous)})

    def _too_many_failures(
        self, plan: GiveUpPlan | None, metrics: Mapping[str, Any], cause: str | None
    ) -> str | None:
        if plan is None:
            return None
        failed = metrics["rollouts/failed"]
        share = failed / (failed + metrics["rollouts/played"])
        lost = "reward/mean" not in metrics or share >= plan.share
        self._failed = self._failed + 1 if lost else 0
        if self._failed < plan.steps:
            return None
        rows = "in the last step" if plan.steps == 1 else f"in each of the last {plan.steps} steps"
        what = "no rollout could be used" if plan.share == 1 else f"{plan.share:.0%} or more failed"
        return f"{rows} {what}; the first cause: {cause or _NO_REWARD}"

    def _is_above(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether the KL exceeds the guard's; unchanged by a step that trained nothing."""
        guard = None if self.stage.rollouts is None else self.stage.rollouts.kl_guard
        if guard is None or metrics.get(KL) is None:
            return self._above
        return not metrics[KL] <= guard.max  # NaN exceeds every limit


@define(eq=False)
class StageLoop:
    """Runs the steps of a stage; ``over_budget`` once it has ended at its budget."""

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
        self._deadline = StepDeadline(self.plan, self.service.owed)

    async def run(self, done: int) -> None:
        """Run the steps after ``done``. Raise RunError if rollouts fail or steps take too long."""
        self._guard.replay(step.metrics for step in self.folder.journal.steps(self.plan.name))
        async with self._deadline.enforced():
            with short_gc_pauses():
                await self._after_step(done)
                if not self._ending:
                    await self._run(done)
        if self._failure is not None:
            raise self._failure

    async def _run(self, done: int) -> None:
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
        """Write a finished step, and return whether the stage continues.

        First the tokens and the rollouts, then the journal, then the metrics: a resume drops the
        files of a step that is not journalled, and writes the metrics again from the journal.
        """
        report = await self.stage.report(step, outcome)
        usage = self.stage.meter.finish(step)
        times = {"total": time.perf_counter() - self._step_began, **outcome.seconds}
        metrics: dict[str, Any] = {"stage": self.plan.name, "step": step, **report.metrics}
        metrics |= usage_metrics(usage) | {f"time/{kind}": took for kind, took in times.items()}
        for scorer, scorers in self.stage.scorers.items():
            metrics[f"tokens/{scorer}"] = scorers.finish(step)
        if self.folder.journal.prices_are_known():
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
        """Run the evaluations that are due; their time belongs to no step."""
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
