"""A whole job: its stages in order, each step journalled before the next begins."""

from __future__ import annotations

import asyncio
import errno
import sqlite3
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, evolve, field

from rlc.envs.python.attributes import search_beside
from rlc.plan.records import EvalPlan, KlPlan, ModelPlan, Plan, SftPlan, TrainPlan
from rlc.runtime.concurrency import in_thread
from rlc.runtime.guard.meter import Meter
from rlc.runtime.guard.remote import RemoteSession
from rlc.runtime.guard.service_wrappers import WatchedServiceClient
from rlc.runtime.journal.checkpoints import CheckpointKeeper
from rlc.runtime.journal.database import StoredStep
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import measure
from rlc.runtime.loop import StageLoop
from rlc.runtime.observer import Observer
from rlc.runtime.records import RunError
from rlc.runtime.rollouts.environments import build_envs
from rlc.runtime.rollouts.groups import TaskStream
from rlc.runtime.stages.base import Stage
from rlc.runtime.stages.evaluation import Evaluator
from rlc.runtime.stages.examples import load_examples
from rlc.runtime.stages.sft import SftStage
from rlc.runtime.stages.train import TrainStage
from rlc.runtime.stages.weights import LostCheckpointError, StageWeights, open_weights
from rlc.runtime.summary import EvalSummary, StageSummary, Summary
from rlc.runtime.trackers.tracking import MetricsLog
from rlc.runtime.updates.reference import reference_client
from rlc.service.interface import RemoteService, ServiceClient, SessionEnd

_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EIO}
_CAUSES = {
    "finished": "",
    "budget": "the budget has no room for another step",
    "interrupted": "it was asked to stop",
}


@define
class Job:
    """Runs the plan of a folder. :meth:`stop` asks it to end after the running step."""

    folder: RunFolder
    service: ServiceClient
    observer: Observer
    _stopping: bool = field(default=False, init=False)
    _over_budget: bool = field(default=False, init=False)
    _remote: RemoteSession | None = field(default=None, init=False)
    _guarded: WatchedServiceClient = field(init=False)
    _log: MetricsLog = field(init=False)
    _evaluator: Evaluator = field(init=False)
    _loop: StageLoop | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        search_beside(self.folder.plan.recipe)
        self._log = MetricsLog(self.folder.path)
        self._evaluator = Evaluator(self.folder, self._log, self.observer)
        self._guarded = WatchedServiceClient.of(self.service, self.observer.note)
        if isinstance(self.service, RemoteService):
            pressed = self._guarded.pressed
            self._remote = RemoteSession(self.service, self.folder, self.observer, pressed)
        self.service = self._guarded

    def stop(self) -> None:
        """End with a checkpoint as soon as the running step is done."""
        self._stopping = True

    async def run(self) -> Summary:
        """Run what is left. Raises RunError or ServiceError; the folder stays resumable.

        A session on a remote service is finished with the run, whichever way that ends.
        """
        self.observer.started(self.folder.plan, self.folder.path)
        self.folder.set_state("running")
        end: SessionEnd = "errored"
        try:
            if self._remote:
                await self._remote.open(self.folder.plan)
            summary = await self._stages(self.folder.plan)
            end = "success" if summary.state == "finished" else "interrupted"
        except asyncio.CancelledError:
            end = "interrupted"
            self._ended(end, "stopped at once")
            raise
        except Exception as error:
            told = _of_the_disk(error, self.folder.path)
            self._ended("failed", str(told).partition("\n")[0] or type(error).__name__)
            if told is not error:
                raise told from error
            raise
        finally:
            if self._remote:
                await self._remote.close(end)
        return summary

    def _ended(self, state: str, cause: str) -> None:
        """Write down why the run ends; where even that cannot be written, the cause is what
        counts, and it is raised."""
        with suppress(sqlite3.Error):
            self.folder.set_state(state, cause)

    async def _stages(self, plan: Plan) -> Summary:
        """All stages in order, those that are done already excepted; once more from an older
        checkpoint where the newest is of no use."""
        while True:
            self.folder.rewind()
            try:
                return await self._all_stages(plan)
            except LostCheckpointError as lost:
                self.observer.note(str(lost))

    async def _all_stages(self, plan: Plan) -> Summary:
        summaries = list[StageSummary]()
        for stage in plan.stages:
            if self._ending:
                break
            if not isinstance(stage, EvalPlan):
                summaries.append(await self._stage(plan, stage))
            elif stage.after is None:
                await self._evaluate_at_end(plan, stage)
        journal, evals = self.folder.journal, [s for s in plan.stages if isinstance(s, EvalPlan)]
        state = "budget" if self._over_budget else "interrupted"
        if self._complete(plan):
            state = "finished"
        self.folder.set_state(state, _CAUSES[state])
        evaluations = [
            EvalSummary(stage.name, stored.step, _values(stored.metrics, stage.name))
            for stage in evals
            for stored in journal.steps(stage.name)
        ]
        return Summary(self.folder.path, state, summaries, evaluations, journal.spent_usd())

    @property
    def _ending(self) -> bool:
        return self._stopping or self._over_budget

    def _complete(self, plan: Plan) -> bool:
        """Whether nothing of the plan is left to do."""
        return all(
            self._evaluator.is_done(stage, _last_step(plan, stage))
            if isinstance(stage, EvalPlan)
            else len(self.folder.journal.steps(stage.name)) == stage.steps
            for stage in plan.stages
        )

    async def _stage(self, plan: Plan, stage: TrainPlan | SftPlan) -> StageSummary:
        """One training stage, from where the journal says it is."""
        started, journal = time.perf_counter(), self.folder.journal
        key = measure(stage)
        done = journal.steps(stage.name)
        values = [s.metrics[key] for s in done if key in s.metrics]
        self.observer.stage_started(stage, len(done), values)
        evaluations = self._evaluations_at_end(plan, stage)
        if len(done) < stage.steps or evaluations:
            try:
                self._log.open(stage)
                if len(done) < stage.steps:
                    await self._steps(plan, stage, done)
                for evaluation in evaluations if not self._ending else ():
                    await self._evaluate_at_end(plan, evaluation)
            finally:
                self._log.close()
        checkpoints = journal.checkpoints(stage.name)
        return StageSummary(
            stage=stage.name,
            planned=stage.steps,
            measure=key.partition("/")[0],
            values=[float(s.metrics[key]) for s in journal.steps(stage.name) if key in s.metrics],
            seconds=time.perf_counter() - started,
            checkpoint=checkpoints[-1].path if checkpoints else None,
        )

    async def _steps(
        self, plan: Plan, stage: TrainPlan | SftPlan, done: Sequence[StoredStep]
    ) -> None:
        self._guarded.begin(stage)
        training = await open_weights(self.service, self.folder, stage, self.observer.note)
        meter = Meter(self.folder.journal, stage.name, stage.model)
        if self._remote:
            stage = self._remote.with_served_context(stage)
            await self._remote.verify(stage, training, meter)
        journal, note = self.folder.journal, self.observer.note
        weights = StageWeights(
            training, self.service, journal, stage, lambda: self._ending, note, len(done)
        )

        async def evaluate(step: int) -> None:
            await self._evaluations_during(plan, weights, step)

        work = await self._work(weights, stage, done, meter)
        loop = StageLoop(
            folder=self.folder,
            service=self._guarded,
            observer=self.observer,
            log=self._log,
            stage=stage,
            work=work,
            meter=meter,
            states=CheckpointKeeper(stage, journal, self.service, note),
            reference_meter=self._reference_meter(stage),
            stop_requested=lambda: self._stopping,
            evaluate=evaluate,
        )
        self._loop = loop
        try:
            await loop.run(len(done))
        finally:
            await work.close()
        self._over_budget = loop.over_budget

    async def _work(
        self,
        weights: StageWeights,
        stage: TrainPlan | SftPlan,
        done: Sequence[StoredStep],
        meter: Meter,
    ) -> Stage:
        seed = self.folder.plan.seed
        if isinstance(stage, SftPlan):
            progress = self.observer.progress
            examples = await load_examples(self.folder, stage, weights, meter, progress)
            return SftStage(stage, seed, weights, examples)
        tokenizer = weights.training.get_tokenizer()
        envs = await in_thread(build_envs, stage.envs, tokenizer, stage.model.renderer)
        cursors = [step.cursor for step in done]
        stream = TaskStream.resumed(envs, seed, ("task", stage.name), cursors)
        reference = None
        if stage.kl is not None:
            reference = await reference_client(self.service, stage.kl.reference)
        return TrainStage(stage, seed, weights, stream, reference, self._played)

    def _played(self, played: int, planned: int) -> None:
        """A group is done: its tokens are billed, whatever becomes of the step."""
        if self._loop is not None:
            self._loop.record_usage()
        self.observer.progress(played, planned)

    def _reference_meter(self, stage: TrainPlan | SftPlan) -> Meter | None:
        if not isinstance(stage, TrainPlan) or stage.kl is None:
            return None
        model = _reference_model(stage.model, stage.kl)
        return Meter(self.folder.journal, stage.name, model)

    async def _evaluations_during(self, plan: Plan, weights: StageWeights, step: int) -> None:
        """The evaluations that are due after a step, or before the first, but not at the end.

        Each has a snapshot of its own: one that is shared with the rollouts, and with it the
        service's cache, would change the last bits of their logprobs.
        """
        tokenizer = weights.training.get_tokenizer()
        for stage in plan.stages:
            if not isinstance(stage, EvalPlan) or stage.after != weights.plan.name:
                continue
            due = stage.first if step == 0 else bool(stage.every and step % stage.every == 0)
            if due and step < weights.plan.steps and not self._evaluator.is_done(stage, step):
                client = await weights.training.save_weights_and_get_sampling_client()
                await self._evaluator.run(stage, step, client, tokenizer)

    def _evaluations_at_end(self, plan: Plan, stage: TrainPlan | SftPlan) -> list[EvalPlan]:
        """Those of the end of a stage that are not done yet."""
        evaluations = [s for s in plan.stages if isinstance(s, EvalPlan) and s.after == stage.name]
        return [e for e in evaluations if not self._evaluator.is_done(e, stage.steps)]

    async def _evaluate_at_end(self, plan: Plan, stage: EvalPlan) -> None:
        """Evaluate the end of a stage, or a model as it is."""
        step = _last_step(plan, stage)
        if not self._evaluator.is_done(stage, step):
            training = await open_weights(self.service, self.folder, stage, self.observer.note)
            client = await training.save_weights_and_get_sampling_client()
            await self._evaluator.run(stage, step, client, training.get_tokenizer())


def _of_the_disk(error: Exception, path: Path) -> Exception:
    """The error itself, or where it says that the disk takes nothing more, what to do about it."""
    if isinstance(error, sqlite3.OperationalError):
        cause = str(error)
    elif isinstance(error, OSError) and error.errno in _DISK:
        cause = error.strerror or str(error)
    else:
        return error
    return RunError(
        f"cannot write the run folder {path}: {cause}",
        "make room on its disk, or see to its permissions; every step that is journalled is kept",
    )


def _last_step(plan: Plan, stage: EvalPlan) -> int:
    """The step of its stage that an evaluation is last done after; 0 for a model as it is."""
    trained = {s.name: s.steps for s in plan.stages if not isinstance(s, EvalPlan)}
    return trained[stage.after] if stage.after is not None else 0


def _reference_model(model: ModelPlan, kl: KlPlan) -> ModelPlan:
    """What a reference is billed as; a saved state is taken for one of the same base."""
    return model if "://" in kl.reference else evolve(model, base=kl.reference)


def _values(metrics: dict[str, float], name: str) -> dict[str, float]:
    """The results of an evaluation without their prefix; faults only where there are any."""
    prefix = f"eval/{name}/"
    values = {k.removeprefix(prefix): v for k, v in metrics.items() if k.startswith(prefix)}
    return {k: v for k, v in values.items() if v or k not in ("failed", "cut_off")}
