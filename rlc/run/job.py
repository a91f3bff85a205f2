"""A whole job: its stages in order, each step journalled before the next begins."""

from __future__ import annotations

import time
from typing import Any

from attrs import define, field
from tinker_cookbook.utils.ml_log import JsonLogger

from rlc.catalog.prices import dollars
from rlc.envs.base import EnvError
from rlc.envs.build import PlayableEnv, build_env
from rlc.envs.seeds import derive_seed
from rlc.plan.tree import Plan, TrainPlan
from rlc.run.folder import RunFolder
from rlc.run.graph import StepOutcome, run_step
from rlc.run.journal import StoredStep
from rlc.run.metrics import (
    METRICS_FILE,
    ROLLOUTS_FILE,
    rollout_metrics,
    rollout_record,
    time_metrics,
    usage_metrics,
)
from rlc.run.mixture import new_cursor
from rlc.run.observer import Observer, StageSummary, Summary
from rlc.run.records import RunError
from rlc.run.stage import Collected, Credited, StageWork, Update
from rlc.service.interface import ServiceClient, TrainingClient


@define
class Job:
    """Runs the plan of a folder. :meth:`stop` asks it to end after the running step."""

    folder: RunFolder
    service: ServiceClient
    observer: Observer
    _stopping: bool = field(default=False, init=False)
    _over_budget: bool = field(default=False, init=False)

    def stop(self) -> None:
        """End with a checkpoint as soon as the running step is done."""
        self._stopping = True

    async def run(self) -> Summary:
        """Run what is left. Raises RunError or ServiceError; the folder stays resumable."""
        plan, journal = self.folder.plan, self.folder.journal
        self.observer.started(plan, self.folder.path)
        journal.set_meta(state="running")
        summaries = []
        for stage in plan.stages:
            summaries.append(await self._stage(plan, stage))
            if self._ending:
                break
        complete = [len(summary.rewards) == summary.planned for summary in summaries]
        state = "budget" if self._over_budget else "interrupted"
        if all(complete) and len(complete) == len(plan.stages):
            state = "finished"
        journal.set_meta(state=state)
        return Summary(self.folder.path, state, summaries, journal.spent_usd())

    @property
    def _ending(self) -> bool:
        return self._stopping or self._over_budget

    async def _stage(self, plan: Plan, stage: TrainPlan) -> StageSummary:
        started, done = time.perf_counter(), self._rewind(stage)
        rewards = [float(step.metrics["reward/mean"]) for step in done]
        self.observer.stage_started(stage, len(done), rewards)
        if len(done) < stage.steps and not self._ending:
            work = await self._work(plan, stage, done)
            await self._steps(plan, work, len(done), rewards)
        checkpoints = self.folder.journal.checkpoints(stage.name)
        return StageSummary(
            stage=stage.name,
            planned=stage.steps,
            rewards=rewards,
            seconds=time.perf_counter() - started,
            checkpoint=checkpoints[-1].path if checkpoints else None,
        )

    def _rewind(self, stage: TrainPlan) -> list[StoredStep]:
        """Go back to the newest checkpoint: later steps are not in any saved weights.

        The files beside the journal are brought in line with it, whatever a crash left of them.
        """
        journal = self.folder.journal
        checkpoints = journal.checkpoints(stage.name)
        last = checkpoints[-1].step if checkpoints else 0
        journal.rewind(stage.name, last)

        def keep(record: dict[str, Any]) -> bool:
            if record.get("stage") != stage.name:
                return "stage" in record
            return bool(record.get("step", last + 1) <= last)

        self.folder.keep_lines(ROLLOUTS_FILE, keep)
        stages = [other.name for other in self.folder.plan.stages]
        steps = {name: journal.steps(name) for name in stages}
        known = [step.metrics for name in stages for step in steps[name]]
        self.folder.rewrite(METRICS_FILE, known)
        return steps[stage.name]

    async def _work(self, plan: Plan, stage: TrainPlan, done: list[StoredStep]) -> StageWork:
        training = await self._training(plan, stage)
        tokenizer = training.get_tokenizer()
        cursor = done[-1].cursor if done else new_cursor([env.name for env in stage.envs])
        return StageWork(
            plan=stage,
            seed=plan.seed,
            envs=_build_envs(stage, tokenizer),
            training=training,
            cursor=dict(cursor),
            stop_requested=lambda: self._ending,
            on_rollouts=self.observer.progress,
        )

    async def _training(self, plan: Plan, stage: TrainPlan) -> TrainingClient:
        """The adapter as the newest checkpoint left it, or a fresh one."""
        checkpoints = self.folder.journal.checkpoints(stage.name)
        metadata = {"rlc_run": self.folder.path.name, "rlc_stage": stage.name}
        if checkpoints:
            path = checkpoints[-1].path
            return await self.service.create_training_client_from_state_with_optimizer(
                path, user_metadata=metadata
            )
        model = stage.model
        return await self.service.create_lora_training_client(
            model.base,
            rank=model.lora_rank,
            seed=derive_seed(plan.seed, "lora", model.name) % 2**31,
            train_mlp=model.train_mlp,
            train_attn=model.train_attn,
            train_unembed=model.train_unembed,
            user_metadata=metadata,
        )

    async def _steps(self, plan: Plan, work: StageWork, done: int, rewards: list[float]) -> None:
        stage, outcome = work.plan, None
        for step in range(done + 1, stage.steps + 1):
            self.folder.journal.start_step(stage.name, step)
            started = time.perf_counter()
            outcome = await run_step(plan.graph, stage.name, work.functions(), step, outcome)
            seconds = time.perf_counter() - started
            metrics = self._account(stage, step, outcome, seconds)
            await self._commit(work, step, outcome, metrics)
            rewards.append(metrics["reward/mean"])
            self.observer.step(step, metrics)
            if self._ending:
                if outcome.outputs["checkpoint"] is None:
                    path = await work.save(step)
                    self.folder.journal.add_checkpoint(stage.name, step, path)
                return

    def _account(
        self, stage: TrainPlan, step: int, outcome: StepOutcome, seconds: float
    ) -> dict[str, Any]:
        """The step's metrics; writes down what it cost and notices the end of the budget."""
        collected: Collected = outcome.outputs["rollouts"]
        update: Update = outcome.outputs["optim_step"]
        usage = collected.usage
        usage.trained = update.trained
        journal, cost = self.folder.journal, dollars(stage.model.base, usage)
        journal.add_spend(stage.name, step, usage, cost)
        spent = journal.spent_usd()
        if stage.budget_usd is not None and step < stage.steps:
            self._over_budget = spent + (cost or 0.0) > stage.budget_usd
        return (
            {"stage": stage.name, "step": step}
            | rollout_metrics(collected.rollouts, [env.name for env in stage.envs])
            | usage_metrics(usage)
            | update.metrics
            | time_metrics(outcome.seconds, seconds)
            | ({} if cost is None else {"spend/usd": spent})
        )

    async def _commit(
        self,
        work: StageWork,
        step: int,
        outcome: StepOutcome,
        metrics: dict[str, Any],
    ) -> None:
        """Rollouts, then the journal, then the metrics: what a crash leaves of a step that is
        not journalled is dropped on resume, and the metrics are made again from the journal."""
        stage, checkpoint = work.plan, outcome.outputs["checkpoint"]
        self.folder.append(ROLLOUTS_FILE, _rollout_records(stage.name, step, outcome))
        self.folder.journal.finish_step(stage.name, step, work.cursor, metrics, checkpoint)
        JsonLogger(self.folder.path).log_metrics(metrics)
        if checkpoint is not None:
            await self._retire_checkpoints(stage)

    async def _retire_checkpoints(self, stage: TrainPlan) -> None:
        """Delete all but the newest ``keep`` checkpoints."""
        journal = self.folder.journal
        for old in journal.checkpoints(stage.name)[: -stage.save.keep]:
            await self.service.delete_checkpoint(old.path)
            journal.drop_checkpoint(stage.name, old.step)


def _build_envs(stage: TrainPlan, tokenizer: Any) -> dict[str, PlayableEnv]:
    try:
        return {env.name: build_env(env, tokenizer, stage.model.renderer) for env in stage.envs}
    except EnvError as error:
        raise RunError(str(error)) from error


def _rollout_records(stage: str, step: int, outcome: StepOutcome) -> list[dict[str, Any]]:
    """All rollouts of a step with their advantages; failed ones have none."""
    collected: Collected = outcome.outputs["rollouts"]
    credited: Credited = outcome.outputs["advantages"]
    by_rollout = {
        id(rollout): values_T.tolist()
        for rollout, values_T in zip(
            credited.rollouts, credited.advantages.by_rollout(), strict=True
        )
    }
    return [
        rollout_record(stage, step, rollout, by_rollout.get(id(rollout), []))
        for rollout in collected.rollouts
    ]
