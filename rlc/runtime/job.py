"""A whole job: its stages in order, each step journalled before the next begins."""

from __future__ import annotations

import asyncio
import errno
import json
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, field

from rlc.catalog import audited, environments_of, provide_keys
from rlc.data import changed_files, search_beside
from rlc.plan import Evaluation, StagePlan, Training, evaluations_of, is_evaluation, is_training
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import Meter, StoredStep
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import watched_so_far
from rlc.runtime.journal.runs import NOTHING_LEARNT, judged_after
from rlc.runtime.loop import StageLoop, made_update, why_nothing_learnt
from rlc.runtime.players.stage import JobPlayers
from rlc.runtime.records import RunError, failure_of, read_failures
from rlc.runtime.remote import RemoteSession
from rlc.runtime.reuse.store import reused_by
from rlc.runtime.reuse.take import still_known
from rlc.runtime.service_guard import ServiceGuard
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.evaluation import EvaluationRunner
from rlc.runtime.stages.opening import OPENERS, try_later_stages
from rlc.runtime.summary import EvalSummary, Observer, StageSummary, Summary
from rlc.runtime.trackers import MetricsLog
from rlc.runtime.updates.optimizer import open_loss
from rlc.runtime.weights import CheckpointKeeper, LostCheckpointError, StageWeights, open_weights
from rlc.service import RemoteService, ServiceClient, SessionEnd, TrainingClient

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO}
_CAUSES = {
    "finished": "",
    "budget": "the budget has no room for another step",
    "interrupted": "it was asked to stop",
}


@define
class Job:
    """Runs the plan of a folder. :meth:`stop` ends it after the running step."""

    folder: RunFolder
    service: ServiceClient
    observer: Observer
    _stopping: bool = field(default=False, init=False)
    _over_budget: bool = field(default=False, init=False)
    _tried: bool = field(default=False, init=False)
    _nothing_learnt: str = field(default="", init=False)  # why, once a stage has ended in vain
    _remote: RemoteSession | None = field(default=None, init=False)
    _service_guard: ServiceGuard = field(init=False)
    _log: MetricsLog = field(init=False)
    _auxiliary: AuxiliaryModels = field(init=False)
    _players: JobPlayers = field(init=False)
    _evaluator: EvaluationRunner = field(init=False)

    def __attrs_post_init__(self) -> None:
        search_beside(self.folder.plan.recipe)
        self._log = MetricsLog(self.folder.path)
        self._service_guard = ServiceGuard.of(self.service, self.observer.note)
        if isinstance(self.service, RemoteService):
            self._remote = RemoteSession(
                self.service, self.folder, self.observer.note, self._service_guard.pressed
            )
        self.service = self._service_guard.client
        self._auxiliary = AuxiliaryModels(self.service, self.folder)
        self._players = JobPlayers(
            self.folder.plan.recipe, self._service_guard, self.observer.note, self.folder.players
        )
        self._evaluator = EvaluationRunner(
            self.folder, self._log, self.observer, self._auxiliary, self._players
        )

    def stop(self) -> None:
        """End the job with a checkpoint as soon as the running step is done."""
        self._stopping = True

    async def run(self) -> Summary:
        """Run the rest of the plan. Raise RunError or ServiceError; the folder stays resumable."""
        self.observer.started(self.folder.plan, self.folder.path)
        if self._remote:
            self.observer.waiting("connecting to the service")
        self.folder.set_state("running")
        for said in provide_keys(self.folder.plan):
            self.observer.warning(said)
        self._note_changed_data()
        self._note_audits()
        for reused in reused_by(self.folder.plan, self.folder.journal):
            self.observer.note(f"reused: {reused.text}")
        end: SessionEnd = "errored"
        try:
            if self._remote:
                await self._remote.open(self.folder.plan)
            summary = await self._run_stages()
            ends: dict[str, SessionEnd] = {"finished": "success", NOTHING_LEARNT: "errored"}
            end = ends.get(summary.state, "interrupted")
        except asyncio.CancelledError:
            end = "interrupted"
            self._record_end(end, "stopped at once")
            raise
        except Exception as error:
            reported = _disk_error(error, self.folder.path) or error
            failure = failure_of(error)
            if failure.place is not None:  # it came from code that is not rlc's
                self.folder.keep_failures([failure])
            cause = str(reported).partition("\n")[0] or str(failure)
            self._record_end("failed", cause)
            if reported is not error:
                raise reported from error
            raise
        finally:
            await self._players.close()
            await self._auxiliary.close()
            if self._remote:
                await self._remote.service.close(end)
        return summary

    def _note_changed_data(self) -> None:
        journal, recorded = self.folder.journal, self.folder.recorded
        if changes := list(changed_files(recorded.data, recorded.recipe)):
            for change in changes:
                what = f"the run goes on with other files than it began with: {change}"
                self.observer.warning(what)
            known = (journal.meta("data_changed") or "").splitlines()
            journal.set_meta(data_changed="\n".join(dict.fromkeys([*known, *changes])))

    def _note_audits(self) -> None:
        """Journal what audits beside the recipe say as the run begins."""
        plan, journal = self.folder.plan, self.folder.journal
        if journal.meta("audit") is None:
            found = audited(environments_of(plan), self.folder.recorded.recipe)
            journal.set_meta(audit=json.dumps(found))

    def _record_end(self, state: str, cause: str) -> None:
        """Journal why the run ends; if that fails too, the error that ended it is raised."""
        with suppress(sqlite3.Error):
            self.folder.set_state(state, cause)

    @property
    def _ending(self) -> bool:
        return self._stopping or self._over_budget or bool(self._nothing_learnt)

    async def _run_stages(self) -> Summary:
        """Run the stages in order; start over from an older checkpoint if the newest is lost."""
        while True:
            self.folder.rewind()
            summaries = list[StageSummary]()
            try:
                for stage in self.folder.plan.stages:
                    if self._ending:
                        break
                    if is_training(stage):
                        summaries.append(await self._run_stage(stage))
                    elif is_evaluation(stage) and stage.after is None:
                        await self._evaluate_at_end(stage)
            except LostCheckpointError as lost:
                self.observer.note(str(lost))
            else:
                return self._summary(summaries)

    def _summary(self, summaries: list[StageSummary]) -> Summary:
        journal, stages = self.folder.journal, self.folder.plan.stages
        finished = all(map(self._is_done, stages))
        state = "finished" if finished else "budget" if self._over_budget else "interrupted"
        state = NOTHING_LEARNT if self._nothing_learnt else state
        cause = self._nothing_learnt or _CAUSES[state]
        self.folder.set_state(state, cause)
        evaluations = [
            EvalSummary(stage.name, stored.step, _results(stored.metrics, stage.name))
            for stage in self.folder.plan.evaluations
            for stored in journal.steps(stage.name)
        ]
        by_name = {stage.name: stage for stage in stages}
        expectations = judged_after(
            self.folder.plan.expectations,
            lambda name: [step.metrics for step in journal.steps(name)],
            lambda name: self._is_done(by_name[name]),
            ended=state != "interrupted",
            rehearses=self.folder.plan.rehearses,
        )
        spent = journal.spent_usd()
        return Summary(self.folder.path, state, summaries, evaluations, spent, cause, expectations)

    async def _run_stage(self, stage: Training) -> StageSummary:
        """Run one training stage from its last journalled step."""
        started, journal = time.perf_counter(), self.folder.journal
        done = journal.steps(stage.name)
        _, values = _main(stage, done)
        self.observer.stage_started(stage, len(done), values)
        evaluations = [
            one
            for one in evaluations_of(stage, self.folder.plan.stages)
            if not self._evaluator.is_done(one, stage.steps)
        ]
        if len(done) < stage.steps or evaluations:
            try:
                self._log.open(stage)
                if len(done) < stage.steps:
                    await self._run_steps(stage, done)
                self._nothing_learnt = self._why_nothing_learnt(stage)
                for evaluation in evaluations if not self._ending else ():
                    usual = self._evaluator.usual_of(evaluation)
                    self._over_budget = not self._evaluator.affords(stage, usual)
                    if not self._over_budget:
                        await self._evaluate_at_end(evaluation)
            finally:
                self._log.close()
        self._nothing_learnt = self._why_nothing_learnt(stage)
        steps, checkpoints = journal.steps(stage.name), journal.checkpoints(stage.name)
        measure, values = _main(stage, steps)
        return StageSummary(
            stage=stage.name,
            planned=stage.steps,
            done=len(steps),
            updates=sum(made_update(step.metrics) for step in steps),
            measure=measure,
            values=values,
            seconds=time.perf_counter() - started,
            checkpoint=checkpoints.get(last := max(checkpoints, default=0)),
            weights=f"{self.folder.path}@{stage.name}:{last}" if checkpoints else None,
        )

    def _why_nothing_learnt(self, stage: Training) -> str:
        """Say why no step of a stage that has ended changed its weights; empty if one did."""
        steps = [step.metrics for step in self.folder.journal.steps(stage.name)]
        if len(steps) < stage.steps and not self._over_budget:
            return ""
        failures = read_failures(self.folder.path)
        first = next((str(failure) for failure in failures if failure.stage == stage.name), None)
        return why_nothing_learnt(stage, steps, self.folder.plan.rehearses, first)

    async def _run_steps(self, stage: Training, done: Sequence[StoredStep]) -> None:
        """Open the weights of a stage and run its steps after those that are done."""
        self._service_guard.begin(stage)
        still_known(self.folder)  # its code is imported now
        journal, note = self.folder.journal, self.observer.note
        self.observer.waiting(f"opening {stage.model.base}")
        training = await open_weights(self.service, self.folder, stage, note)
        await self._try_later_stages(stage, training)
        meter = Meter(journal, stage.name, stage.model)
        if self._remote:
            stage = self._remote.with_served_context(stage)
            await self._remote.verify(stage, training, meter)
        own_loss = await open_loss(self.service, stage, note)
        weights = StageWeights(
            training,
            self.service,
            journal,
            stage,
            lambda: self._stopping,
            note,
            len(done),
            own_loss,
        )
        setup = Setup(
            self.folder, weights, meter, self._auxiliary, self.observer, done, self._players
        )
        opened = await OPENERS[stage](setup, stage)
        keeper = CheckpointKeeper(stage, journal, self.service, note)
        guard, evaluator = self._service_guard, self._evaluator
        loop = StageLoop(
            self.folder, guard, self.observer, self._log, stage, opened, keeper, evaluator
        )
        self.observer.waiting("")
        try:
            await loop.run(len(done))
        finally:
            await opened.close()
            still_known(self.folder, names=[stage.name])
        self._over_budget = loop.over_budget

    async def _evaluate_at_end(self, stage: Evaluation) -> None:
        """Evaluate the weights at the end of a stage, or a model as it is."""
        step = self._last_step(stage)
        if not self._evaluator.is_done(stage, step):
            self.observer.waiting(f"opening {stage.model.base}")
            training = await open_weights(self.service, self.folder, stage, self.observer.note)
            await self._try_later_stages(stage, training)
            await self._evaluator.run(stage, step, training)

    async def _try_later_stages(self, now: StagePlan, training: TrainingClient) -> None:
        """Try the needs of later stages before the first one of this process is paid for."""
        if not self._tried:
            tokenizer, remote = training.get_tokenizer(), self._remote
            later = [
                remote.with_served_context(one) if remote and one.data else one
                for one in self.folder.plan.stages
                if one.name != now.name and not self._is_done(one)
            ]
            await try_later_stages(self.folder, later, now, tokenizer, self.observer.note)
            self._tried = True

    def _is_done(self, stage: StagePlan) -> bool:
        if is_training(stage):
            return len(self.folder.journal.steps(stage.name)) == stage.steps
        return is_evaluation(stage) and self._evaluator.is_done(stage, self._last_step(stage))

    def _last_step(self, stage: Evaluation) -> int:
        """Return the last step of the stage that is evaluated; 0 for a model as it is."""
        trained = {stage.name: stage.steps for stage in self.folder.plan.trainings}
        return trained[stage.after] if stage.after is not None else 0


def _disk_error(error: Exception, path: Path) -> RunError | None:
    """Return the error for a disk that accepts no more data; None for other errors."""
    if isinstance(error, sqlite3.OperationalError):
        cause = str(error)
    elif isinstance(error, OSError) and error.errno in _DISK:
        cause = error.strerror or str(error)
    else:
        return None
    return RunError(
        f"cannot write the run folder {path}: {cause}",
        "make room on its disk, or see to its permissions; every step that is journalled is kept",
    )


def _main(stage: Training, steps: Sequence[StoredStep]) -> tuple[str, list[float]]:
    """Return the name of what a stage is about, and its values by step."""
    main = watched_so_far(stage, [step.metrics for step in steps])[0]
    return main.label, [float(s.metrics[main.key]) for s in steps if main.key in s.metrics]


def _results(metrics: dict[str, float], name: str) -> dict[str, float]:
    """Return the results of an evaluation without their prefix, and its faults if there are any."""
    prefix = f"eval/{name}/"
    values = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    return {k: v for k, v in values.items() if v or k not in ("failed", "cut_off")}
