"""Evaluations: the same tasks each time, played and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from statistics import fmean

from attrs import define

from rlc.algo import pass_at_k
from rlc.catalog import DEFAULT_FAILURE, decides
from rlc.envs import PlayableEnv
from rlc.plan import Evaluation, Training, evaluations_of, metric_label
from rlc.pricing import stage_cost
from rlc.runtime.auxiliary import AuxiliaryModels
from rlc.runtime.journal.database import NOTHING, Meter, RecordedUsage
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import (
    ROLLOUTS_FILE,
    Record,
    by_role,
    measured,
    rollout_record,
    usage_metrics,
)
from rlc.runtime.players.stage import JobPlayers
from rlc.runtime.records import Rollout, Usage, grouped
from rlc.runtime.reuse.take import still_known
from rlc.runtime.rollouts.groups import (
    TaskPlayer,
    build_envs,
    play_groups,
    play_task,
    require_any,
)
from rlc.runtime.rollouts.player import Player, close_envs
from rlc.runtime.rollouts.tasks import TaskStream, new_cursor
from rlc.runtime.service_guard import LimitedSamplingClient, fixed_limiter
from rlc.runtime.summary import Observer
from rlc.runtime.trackers import MetricsLog
from rlc.runtime.weights import StageWeights
from rlc.service import SamplingClient, TrainingClient


def evaluation_metrics(plan: Evaluation, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the metrics of the plan under ``eval/<name>/``, also by environment and by role.

    An episode that failed did not solve its task, and has no reward. A judge's pick alone decides
    whether a task is solved.
    """
    prefix = f"eval/{plan.name}"
    envs = {env.name: env for env in plan.envs}
    deciding = [rollout for rollout in rollouts if decides(envs[rollout.env], rollout.role)]
    metrics = dict[str, float]()

    def add(found: Mapping[str, float], under: str = prefix) -> None:
        metrics.update({f"{under}/{key}": value for key, value in found.items()})

    add(_metrics(plan, deciding))
    for role, part in by_role(rollouts).items():
        if any(rollout.role != role for rollout in deciding):
            add(_metrics(plan, part), f"{prefix}/{role}")
    for env in plan.envs:
        if mine := [rollout for rollout in deciding if rollout.env == env.name]:
            if len(plan.envs) > 1:
                add(_metrics(plan, mine), f"{prefix}/{env.name}")
            played = [rollout for rollout in mine if rollout.error is None]
            found = measured(env.name, played)
            for role, part in by_role(played).items() if env.play is not None else ():
                found |= measured(f"{env.name}/{role}", part)
            add(found)
    if raw := [r.raw for r in deciding if r.raw is not None and r.error is None]:
        metrics[f"{prefix}/raw_reward"] = fmean(raw)
    metrics[f"{prefix}/failed"] = float(sum(rollout.error is not None for rollout in rollouts))
    # A result may be bad although the model is good: replies cut off at max_tokens, and episodes
    # whose answer could not be read, if the environment measures that.
    if turns := [turn for rollout in rollouts for turn in rollout.turns]:
        metrics[f"{prefix}/cut_off"] = fmean(turn.stop_reason == "length" for turn in turns)
    last = [rollout.turns[-1].metrics for rollout in rollouts if rollout.turns]
    if read := [found["format"] for found in last if "format" in found]:
        metrics[f"{prefix}/format"] = fmean(read)
    return metrics


def task_metrics(
    plan: Evaluation, records: Iterable[Record]
) -> dict[tuple[str, int], dict[str, float]]:
    """Return the metrics of the plan for each task alone, from the records of its episodes."""
    envs = {env.name: env for env in plan.envs}
    rollouts = [
        Rollout(
            **{name: record[name] for name in ("env", "task", "member", "ended", "error", "role")},
            digest="",
            turns=(),
            credit=(record["reward"],),
            raw=record.get("raw_reward"),
            unplayed=record["turns"][-1]["metrics"] if record["turns"] else {},
        )
        for record in records
    ]
    deciding = [rollout for rollout in rollouts if decides(envs[rollout.env], rollout.role)]
    tasks = grouped(deciding, lambda rollout: rollout.group)
    return {task: _metrics(plan, samples) for task, samples in tasks.items()}


def _metrics(plan: Evaluation, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the metrics of the plan; no mean over episodes that have all failed."""
    tasks = grouped(rollouts, lambda rollout: rollout.group).values()
    solved = [[sample.solved for sample in samples] for samples in tasks]
    played = [rollout for rollout in rollouts if rollout.error is None]
    metrics = {}
    for metric in plan.metrics:
        if metric.k is not None:
            value_of = _OF_TASK[metric.name]
            values = [value_of(solved_S, metric.k) for solved_S in solved]
            metrics[metric_label(metric)] = fmean(values)
        elif played:
            metrics[metric_label(metric)] = fmean(map(_OF_EPISODE[metric.name], played))
    return metrics


# Metrics of k episodes: the value of a task, from whether each sample solved it, and k.
_OF_TASK: Mapping[str, Callable[[Sequence[bool], int], float]] = {
    "pass_at": lambda solved_S, k: pass_at_k(len(solved_S), sum(solved_S), k),
    "any_at": lambda solved_S, k: pass_at_k(k, sum(solved_S[:k]), k),
}


# Means over episodes: the value of one.
_OF_EPISODE: Mapping[str, Callable[[Rollout], float]] = {
    "mean_reward": lambda rollout: rollout.reward,
    "win_rate": lambda rollout: rollout.last_metric("win"),
}


@define(eq=False)
class EvaluationRunner:
    """Runs the evaluations of a job, each once, and journals them."""

    folder: RunFolder
    log: MetricsLog
    observer: Observer
    auxiliary: AuxiliaryModels
    players: JobPlayers

    def is_done(self, plan: Evaluation, step: int) -> bool:
        return self.folder.journal.step(plan.name, step) is not None

    async def run_due(self, weights: StageWeights, step: int) -> None:
        """Run the evaluations due after a step, or before the first, but not at the end."""
        for plan in self._due(weights.plan, step):
            await self.run(plan, step, weights.training)

    def usual(self, stage: Training, step: int) -> RecordedUsage:
        """Return what the evaluations due after a step will probably use."""
        return sum(map(self.usual_of, self._due(stage, step)), NOTHING)

    def usual_of(self, plan: Evaluation) -> RecordedUsage:
        """Return what an evaluation used the last time; before the first, its estimate."""
        journal, done = self.folder.journal, self.folder.journal.steps(plan.name)
        if done:
            return journal.used(plan.name, done[-1].step)
        cost = stage_cost(plan)
        tokens = round(cost.step_tokens["expected"].total)
        return RecordedUsage(cost.step["expected"].usd, tokens, seconds=0.0)

    def affords(self, stage: Training, more: RecordedUsage) -> bool:
        """Return whether a stage's budget, shared with its evaluations, has room for more."""
        journal, evaluations = self.folder.journal, evaluations_of(stage, self.folder.plan.stages)
        used = sum((journal.used(plan.name) for plan in evaluations), journal.used(stage.name))
        return used.fits(stage.budget, more)

    def _due(self, stage: Training, step: int) -> list[Evaluation]:
        """Return the evaluations to run after a step, or before the first, but not at the end."""
        if step == stage.steps:
            return []
        return [
            plan
            for plan in evaluations_of(stage, self.folder.plan.stages)
            if (plan.first if step == 0 else bool(plan.every and step % plan.every == 0))
            and not self.is_done(plan, step)
        ]

    async def run(self, plan: Evaluation, step: int, training: TrainingClient) -> None:
        """Evaluate the weights after ``step`` of the stage (0: before the first step)."""
        self.observer.waiting(f"evaluating {plan.name} after step {step:,}")
        # Not the snapshot of the rollouts: with it they would share the service's cache, which
        # changes the last bits of logprobs.
        client = await training.save_weights_and_get_sampling_client()
        journal = self.folder.journal
        meter = Meter(journal, plan.name, plan.model)
        usage = meter.running[step]
        tokenizer, responders = training.get_tokenizer(), self.auxiliary.responders(meter)
        envs = build_envs(plan.envs, tokenizer, plan.model.renderer, responders)
        journal.start_step(plan.name, step)
        started = time.perf_counter()
        players, most = None, plan.sampling.concurrency
        of_stage = plan, envs, tokenizer, responders, DEFAULT_FAILURE, plan.sampling
        try:
            players = await self.players.of(*of_stage, own=most)
            play = play_task if players is None else players.play
            rollouts = await self.play(plan, envs, client, usage, play)
            failures = [rollout.failure for rollout in rollouts if rollout.failure]
            self.folder.keep_failures(failures, plan.name, step)
            require_any(rollouts)
        finally:
            meter.finish(step)
            if players is not None:
                await players.close()
            await close_envs(envs.values())
        metrics = {"stage": plan.name, "step": step} | evaluation_metrics(plan, rollouts)
        metrics |= usage_metrics(usage) | {"time/total": time.perf_counter() - started}
        records = [rollout_record(plan.name, step, rollout) for rollout in rollouts]
        self.folder.append(ROLLOUTS_FILE, records)
        journal.finish_step(plan.name, step, {}, metrics)
        still_known(self.folder, names=[plan.name])
        self.log.write(metrics)
        self.observer.evaluated(plan, step, metrics)

    async def play(
        self,
        plan: Evaluation,
        envs: Mapping[str, PlayableEnv],
        client: SamplingClient,
        usage: Usage,
        play: TaskPlayer = play_task,
    ) -> list[Rollout]:
        """Return all samples of all tasks, with the same random streams for all weights."""
        if (most := plan.sampling.concurrency) is not None:
            client = LimitedSamplingClient(client, fixed_limiter(most))
        player = Player(client, plan.sampling, plan.model.context, DEFAULT_FAILURE, usage)
        seed, names = self.folder.plan.seed, ("eval", plan.name)
        stream = TaskStream(envs, new_cursor(list(envs)), seed, names, size=plan.samples)
        played = count(1)

        def on_group(members: list[Rollout]) -> None:
            self.observer.progress(next(played), plan.tasks)
            self.observer.played(members)

        groups = await play_groups(player, stream.take(plan.tasks), on_group, play)
        return [member for group in groups for member in group]
