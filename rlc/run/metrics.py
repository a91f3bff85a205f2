"""One flat record of numbers a step: what ``metrics.jsonl`` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from attrs import asdict

from rlc.run.records import Rollout, Usage

METRICS_FILE = "metrics.jsonl"
ROLLOUTS_FILE = "rollouts.jsonl"


def rollout_metrics(rollouts: Sequence[Rollout], envs: Sequence[str]) -> dict[str, float]:
    """Rewards and lengths, over all episodes and by environment. Failed ones only count as
    failed; an environment without a finished episode in this step has no reward entry."""
    played = [rollout for rollout in rollouts if rollout.error is None]
    metrics = {
        "reward/mean": fmean(rollout.reward for rollout in played),
        "turns/mean": fmean(len(rollout.turns) for rollout in played),
        "rollouts/played": float(len(played)),
        "rollouts/failed": float(len(rollouts) - len(played)),
        "rollouts/context_overflow": float(sum(r.ended == "context" for r in played)),
        "turns/cut_off": _share_cut_off(played),
        "groups/constant": _share_constant(played),
    }
    for env in envs:
        rewards = [rollout.reward for rollout in played if rollout.env == env]
        if rewards:
            metrics[f"reward/{env}"] = fmean(rewards)
    return metrics


def usage_metrics(usage: Usage) -> dict[str, int]:
    """Token counts by kind."""
    return {f"tokens/{kind}": count for kind, count in asdict(usage).items()}


def time_metrics(seconds: Mapping[str, float], total: float) -> dict[str, float]:
    """Seconds of each node of the step graph, and of the step."""
    return {"time/total": total} | {f"time/{kind}": value for kind, value in seconds.items()}


def rollout_record(stage: str, step: int, rollout: Rollout, advantages: list[float]) -> Any:
    """One line of ``rollouts.jsonl``; ``advantages`` has one value a turn."""
    return {
        "stage": stage,
        "step": step,
        "env": rollout.env,
        "task": rollout.task,
        "member": rollout.member,
        "digest": rollout.digest,
        "reward": rollout.reward,
        "ended": rollout.ended,
        "error": rollout.error,
        "advantages": advantages,
        "turns": [
            {
                "observation": turn.observation,
                "action": turn.action,
                "reward": turn.reward,
                "prompt_tokens": len(turn.prompt),
                "tokens": len(turn.tokens),
                "stop_reason": turn.stop_reason,
            }
            for turn in rollout.turns
        ],
    }


def _share_cut_off(rollouts: Sequence[Rollout]) -> float:
    """Share of the replies that ran into max_tokens."""
    return fmean(turn.stop_reason == "length" for rollout in rollouts for turn in rollout.turns)


def _share_constant(rollouts: Sequence[Rollout]) -> float:
    """Share of the groups whose members all have the same reward."""
    groups: dict[tuple[str, int], set[float]] = {}
    for rollout in rollouts:
        groups.setdefault((rollout.env, rollout.task), set()).add(rollout.reward)
    return fmean(len(rewards) == 1 for rewards in groups.values())
