"""The records of the JSON lines in a run folder: metrics, rollouts, and when each node ran."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from attrs import define, field

from rlc.catalog import WatchedMetric, watched, with_role
from rlc.plan import EnvPlan, StagePlan, Training
from rlc.records import asdict
from rlc.runtime.graph import NodeContext
from rlc.runtime.records import FORM_RETRIES, Rollout, Usage, grouped

METRICS_FILE = "metrics.jsonl"
ROLLOUTS_FILE = "rollouts.jsonl"
COMPARISONS_FILE = "comparisons.jsonl"  # the rewards of the replies that a step compared

_CUT_SHORT = ("prompt", "tokens", "turns", "form")  # ends of rollouts
# Fields that a rollout and its record have in common.
_SAME = ("env", "task", "member", "role", "digest", "reward", "ended", "error", "cause")


def watched_so_far(stage: StagePlan, records: Collection[Mapping[str, Any]]) -> list[WatchedMetric]:
    """Return what a stage is about, without what was 0 in all of its steps; at least the first."""
    every = watched(stage)
    return [one for one in every if any(record.get(one.key) for record in records)] or [*every[:1]]


def score(stage: Training, metrics: Mapping[str, Any]) -> float:
    """Return the main metric of a step, more is better; -inf if it has none."""
    main = next(one for one in watched(stage) if one.rises is not None)
    value = metrics.get(main.key)
    if value is None:
        return float("-inf")
    return float(value) if main.rises else -float(value)


def evaluation_results(metrics: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the results of an evaluation, without prefix, faults and environment metrics."""
    prefix = f"eval/{name}/"
    mine = {key.removeprefix(prefix): v for key, v in metrics.items() if key.startswith(prefix)}
    faults = ("failed", "cut_off")
    return {k: value for k, value in mine.items() if k not in faults and not k.startswith("env/")}


def failures_by_cause(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Count the failed rollouts of a step by cause."""
    prefix = "failures/"
    return {k.removeprefix(prefix): int(n) for k, n in metrics.items() if k.startswith(prefix)}


def rollout_metrics(rollouts: Sequence[Rollout], envs: Sequence[EnvPlan]) -> dict[str, float]:
    """Return the metrics of a step's rollouts, over all of them, by environment and by role.

    A failure only counts as failed, unless the plan gives it a reward. An environment, or a step,
    without an episode that counts has no reward.
    """
    played = [rollout for rollout in rollouts if rollout.error is None]
    counted = [rollout for rollout in rollouts if rollout.credit]
    failed = [rollout for rollout in rollouts if rollout.error is not None]
    failures = Counter(f"failed/{rollout.env}" for rollout in failed)
    failures.update(f"failures/{rollout.cause or 'unknown'}" for rollout in failed)
    metrics = {
        **mean_metric("reward/mean", (rollout.reward for rollout in counted)),
        **mean_metric("turns/mean", (len(rollout.turns) for rollout in played)),
        "rollouts/played": float(len(played)),
        "rollouts/failed": float(len(failed)),
        "rollouts/retried": float(sum(bool(rollout.retried) for rollout in rollouts)),
        "rollouts/form_retries": sum(rollout.last_metric(FORM_RETRIES) for rollout in played),
        "rollouts/context_overflow": float(sum(r.ended == "context" for r in played)),
        "rollouts/cut_short": float(sum(r.ended in _CUT_SHORT for r in played)),
        "rollouts/staleness": fmean(rollout.staleness for rollout in rollouts),
        **_cut_off(played),
        **mean_metric("entropy/mean", _surprisals(played)),
        **_constant_groups(counted),
        **{
            f"time/episode/{kind}": fmean(rollout.seconds.get(kind, 0.0) for rollout in rollouts)
            for kind in sorted({kind for rollout in rollouts for kind in rollout.seconds})
        },
        **{name: float(number) for name, number in sorted(failures.items())},
    }
    for env in envs:
        if mine := [rollout for rollout in counted if rollout.env == env.name]:
            metrics |= _env_metrics(env, mine)
        for role, part in by_role(mine).items():
            metrics[f"reward/{env.name}/{role}"] = fmean(rollout.reward for rollout in part)
            metrics |= measured(f"{env.name}/{role}", part)
    for role, part in by_role(counted).items():
        if any("correct" in rollout.last_metrics for rollout in part):
            metrics[f"{role}_acc"] = fmean(rollout.last_metric("correct") for rollout in part)
    return metrics


def _env_metrics(env: EnvPlan, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the metrics of one environment's episodes. ``reward_std`` is a population standard
    deviation, ``length`` counts sampled tokens, ``episodes/`` are the values of ``track()``."""
    name, rewards = env.name, [rollout.reward for rollout in rollouts]
    metrics = {
        f"reward/{name}": fmean(rewards),
        f"reward_std/{name}": pstdev(rewards),
        **mean_metric(f"raw_reward/{name}", (r.raw for r in rollouts if r.raw is not None)),
        f"turns/{name}": fmean(len(rollout.turns) for rollout in rollouts),
        f"length/{name}": fmean(sum(len(t.tokens) for t in r.turns) for r in rollouts),
        **_cut_off(rollouts, f"/{name}"),
        **mean_metric(f"entropy/{name}", _surprisals(rollouts)),
        **_constant_groups(rollouts, f"/{name}"),
    }
    if with_role(env, "tracking") is not None:
        returns = [sum(turn.reward or 0.0 for turn in rollout.turns) for rollout in rollouts]
        metrics |= {
            f"episodes/{name}/turns": metrics[f"turns/{name}"],
            f"episodes/{name}/return": fmean(returns),
            f"episodes/{name}/return_min": min(returns),
            f"episodes/{name}/return_max": max(returns),
        }
    return metrics | measured(name, rollouts)


def by_role(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """Return the rollouts of each role, without those that have none."""
    return grouped((one for one in rollouts if one.role), lambda rollout: rollout.role)


def measured(name: str, rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Return the means of the environment's metrics of each episode's last action."""
    kinds = sorted({kind for rollout in rollouts for kind in rollout.last_metrics})
    return {f"env/{name}/{kind}": fmean(r.last_metric(kind) for r in rollouts) for kind in kinds}


def mean_metric(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return the mean of some values; no entry if there are none."""
    values = list(values)
    return {name: fmean(values)} if values else {}


def _cut_off(rollouts: Sequence[Rollout], of: str = "") -> dict[str, float]:
    turns = (turn for rollout in rollouts for turn in rollout.turns)
    return mean_metric(f"turns/cut_off{of}", (turn.stop_reason == "length" for turn in turns))


def _surprisals(rollouts: Sequence[Rollout]) -> Iterator[float]:
    """Yield ``-log q`` of each sampled token (nats), whose mean estimates the policy's entropy."""
    for rollout in rollouts:
        for turn in rollout.turns:
            yield from (-logprob for logprob in turn.logprobs)


def _constant_groups(rollouts: Sequence[Rollout], of: str = "") -> dict[str, float]:
    """Return the shares of groups (of one role) whose members all have the same reward."""
    groups = grouped(rollouts, lambda rollout: (rollout.group, rollout.role))
    if not groups:
        return {}
    constant = [group for group in groups.values() if len({one.reward for one in group}) == 1]
    good = sum(any(one.solved for one in group) for group in constant)
    return {
        f"groups/constant{of}": len(constant) / len(groups),
        f"groups/all_good{of}": good / len(groups),
        f"groups/all_bad{of}": (len(constant) - good) / len(groups),
    }


def usage_metrics(usage: Usage) -> dict[str, int]:
    """Return token counts by kind."""
    return {f"tokens/{kind}": count for kind, count in asdict(usage).items()}


def rollout_record(
    stage: str, step: int, rollout: Rollout, advantages: list[float] | None = None
) -> Any:
    """Return a record of ``rollouts.jsonl``; ``advantages`` has one value a turn."""
    return {
        "stage": stage,
        "step": step,
        **{name: getattr(rollout, name) for name in _SAME},
        **({} if rollout.raw is None else {"raw_reward": rollout.raw}),
        "credit": list(rollout.credit),
        **({"components": _components(rollout)} if rollout.components else {}),
        **({"failure": rollout.failure.key} if rollout.failure else {}),
        **({"retried": list(rollout.retried)} if rollout.retried else {}),
        "staleness": rollout.staleness,
        "replaced": rollout.replaced,
        "seconds": dict(rollout.seconds),
        **({"about": rollout.about.written()} if rollout.about else {}),
        "advantages": advantages or [],
        "turns": [
            {
                "observation": turn.observation,
                "action": turn.action,
                "reward": turn.reward,
                "metrics": dict(turn.metrics),
                "prompt_tokens": len(turn.prompt),
                "tokens": len(turn.tokens),
                "stop_reason": turn.stop_reason,
                **({"calls": turn.calls} if turn.calls else {}),
                **({"verdicts": list(map(asdict, turn.verdicts))} if turn.verdicts else {}),
                **({} if turn.move is None else {"move": turn.move}),
                **({"others": turn.others} if turn.others else {}),
                **({"steps": turn.steps} if turn.steps else {}),
            }
            for turn in rollout.turns
        ],
    }


def _components(rollout: Rollout) -> dict[str, Any]:
    return {name: [weight, list(of_T)] for name, (weight, of_T) in rollout.components.items()}


TIMELINE_FILE = "timeline.jsonl"
SERVICE_FILE = "service.jsonl"  # sessions and events of a remote service


@define(eq=False)
class Timeline:
    """The spans of one stage, kept until their step is journalled."""

    stage: str
    _spans: dict[int, list[dict[str, Any]]] = field(factory=dict, init=False)

    def add(self, kind: str, node: NodeContext, start: float, end: float) -> None:
        """Add that a part of a node ran from ``start`` to ``end`` (seconds since the epoch)."""
        span = {"stage": self.stage, "step": node.step, "part": node.part, "kind": kind}
        span |= {"start": round(start, 6), "end": round(end, 6)}
        self._spans.setdefault(node.step, []).append(span)

    def take(self, step: int) -> list[dict[str, Any]]:
        """Remove and return the records of a step, in the order in which its nodes ended."""
        return self._spans.pop(step, [])


Record = dict[str, Any]


def read_metrics(path: Path) -> list[Record]:
    """Return the metrics in a run folder: a record for each step and evaluation."""
    return [r for r in read_lines(path / METRICS_FILE) if "stage" in r and "step" in r]


def read_lines(path: Path) -> Iterator[Record]:
    """Yield the objects of a file of JSON lines, if it exists, except those that are damaged."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if (record := parse_line(line)) is not None:
                yield record


def parse_line(line: str) -> Record | None:
    """Return the object on a line; None if a crash or an editor damaged it."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def is_number(value: object) -> bool:
    """Return whether a value is a finite number."""
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return known and math.isfinite(float(value))  # type: ignore[arg-type]
