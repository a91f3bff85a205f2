"""Evaluations: the same tasks each time, played and counted."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

from attrs import define

from rlc.algo.passk import pass_at_k
from rlc.catalog.builtins.training import DEFAULT_FAILURE
from rlc.envs.base import SOLVED
from rlc.envs.build import PlayableEnv
from rlc.envs.judges.solver_judge import JUDGE
from rlc.plan.records import EvalPlan, MetricPlan
from rlc.runtime.guard.adaptive_concurrency import LimitedSamplingClient, fixed_limiter
from rlc.runtime.guard.meter import Meter
from rlc.runtime.journal.folder import RunFolder
from rlc.runtime.journal.metrics import ROLLOUTS_FILE, by_role, rollout_record, usage_metrics
from rlc.runtime.observer import Observer
from rlc.runtime.records import Rollout, Usage
from rlc.runtime.rollouts.environments import build_envs, close_envs
from rlc.runtime.rollouts.groups import TaskStream, play_tasks, require_any
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import new_cursor
from rlc.runtime.trackers.tracking import MetricsLog
from rlc.service.interface import SamplingClient


@define
class Evaluation:
    """One evaluation of some weights. Tasks and seeds are streams of its own, the same for all
    weights: what differs between two evaluations is the model."""

    plan: EvalPlan
    seed: int
    envs: Mapping[str, PlayableEnv]
    usage: Usage
    on_groups: Callable[[int, int], None]

    async def play(self, client: SamplingClient) -> list[Rollout]:
        """All samples of all tasks. Raises RunError if not one of them succeeded."""
        if (most := self.plan.sampling.concurrency) is not None:
            client = LimitedSamplingClient(client, fixed_limiter(most))
        player = Player(
            client=client,
            sampling=self.plan.sampling,
            context=self.plan.model.context,
            on_error=DEFAULT_FAILURE,
            usage=self.usage,
        )
        names = ("eval", self.plan.name)
        cursor = new_cursor(list(self.envs))
        stream = TaskStream(self.envs, cursor, self.seed, names, size=self.plan.samples)
        done = 0

        def on_group() -> None:
            nonlocal done
            done += 1
            self.on_groups(done, self.plan.tasks)

        rollouts = await play_tasks(player, stream.take(self.plan.tasks), on_group)
        require_any(rollouts)
        return rollouts


def evaluation_metrics(plan: EvalPlan, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """The metrics that the plan asks for, under ``eval/<name>/``, and for each environment of a
    mixture. An episode that failed did not solve its task, and has no reward. Where a task is
    played in roles, the judge's pick decides; the other roles have metrics of their own."""
    metrics = _metrics(plan, _deciding(rollouts), f"eval/{plan.name}")
    for role, part in by_role(rollouts).items():
        if role != JUDGE:
            metrics |= _metrics(plan, part, f"eval/{plan.name}/{role}")
    if len(plan.envs) > 1:
        for env in plan.envs:
            mine = [rollout for rollout in _deciding(rollouts) if rollout.env == env.name]
            metrics |= _metrics(plan, mine, f"eval/{plan.name}/{env.name}") if mine else {}
    failed = sum(rollout.error is not None for rollout in rollouts)
    return metrics | {f"eval/{plan.name}/failed": float(failed)} | _faults(plan.name, rollouts)


def _faults(name: str, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Why a result may be bad without the model being bad: the share of the replies that were cut
    off at max_tokens, and that of the episodes whose answer could be read, where that is known."""
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    last = [rollout.turns[-1].metrics for rollout in rollouts if rollout.turns]
    read = [metrics["format"] for metrics in last if "format" in metrics]
    found = {}
    if turns:
        found["cut_off"] = fmean(turn.stop_reason == "length" for turn in turns)
    if read:
        found["format"] = fmean(read)
    return {f"eval/{name}/{kind}": share for kind, share in found.items()}


def _deciding(rollouts: Sequence[Rollout]) -> list[Rollout]:
    """One rollout for each sample of a task: the one whose reward says whether it is solved."""
    return [rollout for rollout in rollouts if rollout.role in ("", JUDGE)]


def _metrics(plan: EvalPlan, rollouts: Sequence[Rollout], prefix: str) -> dict[str, float]:
    tasks: dict[tuple[str, int], list[Rollout]] = {}
    for rollout in rollouts:
        tasks.setdefault(rollout.group, []).append(rollout)
    solved_TS = [[_solved(sample) for sample in samples] for samples in tasks.values()]
    return {
        f"{prefix}/{_label(metric)}": value
        for metric in plan.metrics
        if (value := _value(metric, rollouts, solved_TS)) is not None
    }


def _solved(rollout: Rollout) -> bool:
    return rollout.error is None and rollout.reward >= SOLVED


def _value(
    metric: MetricPlan, rollouts: Sequence[Rollout], solved_TS: Sequence[Sequence[bool]]
) -> float | None:
    """None where nothing was measured: no episode has a reward."""
    if metric.k is None:
        rewards = [rollout.reward for rollout in rollouts if rollout.error is None]
        return fmean(rewards) if rewards else None
    of_task = _OF_TASK[metric.name]
    return fmean(of_task(solved_S, metric.k) for solved_S in solved_TS)


# Metrics of k episodes: whether each episode of a task solved it, and k -> the task's value.
_OF_TASK: Mapping[str, Callable[[Sequence[bool], int], float]] = {
    "pass_at": lambda solved_S, k: pass_at_k(len(solved_S), sum(solved_S), k),
    "any_at": lambda solved_S, k: pass_at_k(k, sum(solved_S[:k]), k),
}


def _label(metric: MetricPlan) -> str:
    return metric.name if metric.k is None else f"{metric.name.replace('_at', '')}@{metric.k}"


@define(eq=False)
class Evaluator:
    """Does the evaluations of a job, each once, and writes them down."""

    folder: RunFolder
    log: MetricsLog
    observer: Observer

    def is_done(self, plan: EvalPlan, step: int) -> bool:
        """Whether the weights after ``step`` of its stage have been evaluated."""
        return self.folder.journal.step(plan.name, step) is not None

    async def run(self, plan: EvalPlan, step: int, client: SamplingClient, tokenizer: Any) -> None:
        """Evaluate the weights after ``step`` of the stage (0: before the first)."""
        journal, usage = self.folder.journal, Usage()
        meter = Meter(journal, plan.name, plan.model)
        envs = build_envs(plan.envs, tokenizer, plan.model.renderer)
        evaluation = Evaluation(plan, self.folder.plan.seed, envs, usage, self.observer.progress)
        journal.start_step(plan.name, step)
        started = time.perf_counter()
        try:
            rollouts = await evaluation.play(client)
        finally:
            meter.record(step, usage)
            await close_envs(envs.values())
        metrics = {"stage": plan.name, "step": step} | evaluation_metrics(plan, rollouts)
        metrics |= usage_metrics(usage) | {"time/total": time.perf_counter() - started}
        records = [rollout_record(plan.name, step, rollout) for rollout in rollouts]
        self.folder.append(ROLLOUTS_FILE, records)
        journal.finish_step(plan.name, step, {}, metrics)
        self.log.write(metrics)
        self.observer.evaluated(plan, step, metrics)
