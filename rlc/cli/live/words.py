"""What is said of a stage: its numbers by name, what it spends, what it waits for, what failed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from rlc.catalog import roles_of
from rlc.cli.live.state import RunState, StageState, envs_of, measured
from rlc.plan import OUTCOMES, EnvPlan, Evaluation, elapsed, is_training
from rlc.runtime import evaluation_results, failures_by_cause, is_number

_NOISE = 1e-6


@frozen
class MetricCurve:
    """A metric of each step so far, with its name. ``watched``: the stage is judged by it."""

    label: str
    values: list[float]
    watched: bool = False

    @property
    def last(self) -> str:
        return number(self.values[-1])

    @property
    def varies(self) -> bool:
        """Whether there is a curve to see; of what is added up in 32 bits the last are noise."""
        low, high = min(self.values), max(self.values)
        return low < high and (high - low > _NOISE or not self.label.startswith(("kl", "ess")))


def number(value: float) -> str:
    """Format a number in at most eight columns: ``0.854``, ``30.5``, ``1,474``, ``1.2e-08``."""
    if not value or 0.01 <= abs(value) < 100:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    if abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.1e}"


def learning(state: RunState) -> list[MetricCurve]:
    """Return what a stage is watched by: in all, by environment and role, and its evaluations."""
    stage = state.current
    assert stage is not None
    key, name = measured(stage)
    curves = [MetricCurve(name, stage.values(key), watched=True)]
    if (rollouts := stage.plan.rollouts) is not None:
        labelled = _parts(rollouts.envs, name)
        curves += [MetricCurve(label, stage.values(key), True) for label, key in labelled]
    if stage.plan.data:
        keys = ("accuracy", "heldout/accuracy", "margin", "loss/mean", "heldout/loss")
        words = [(one.replace("heldout/", "held-out ").replace("/mean", ""), one) for one in keys]
        curves += [MetricCurve(word, stage.values(one), True) for word, one in words if one != key]
    for evaluation in state.evaluations:
        found = evaluation_results(evaluation.last, evaluation.plan.name)
        prefix = f"eval/{evaluation.plan.name}/"
        curves += [
            MetricCurve(
                f"{evaluation.plan.name} {one}", evaluation.values(prefix + one), watched=True
            )
            for one in found
        ]
    return [curve for curve in curves if curve.values]


def _parts(envs: Sequence[EnvPlan], name: str) -> Iterator[tuple[str, str]]:
    """Yield the label and the metric of each environment, role and outcome of matches."""
    for env in envs:
        if len(envs) > 1:
            yield f"{name} {env.name}", f"reward/{env.name}"
        for role in roles_of(env):
            if env.play is None:
                yield f"{env.name} {role}", f"reward/{env.name}/{role}"
            else:
                for outcome in OUTCOMES:
                    yield f"{env.name} {role} {outcome}", f"env/{env.name}/{role}/{outcome}"


def health(stage: StageState) -> list[MetricCurve]:
    """Return what shows whether training is sound, the most telling first."""
    envs = envs_of(stage)
    several = len(envs) > 1
    named = [
        ("kl", "kl/sample_train"),
        ("kl reference", "kl/reference"),
        ("kl teacher", "teacher/kl"),
        ("entropy", "entropy/mean"),
        ("gradient norm", "optim/grad_norm"),
        *((f"length {env}" if several else "length", f"length/{env}") for env in envs),
        ("clipped", "policy/clip_fraction"),
        ("ess", "policy/ess"),
        ("equal groups", "groups/constant"),
        ("cut replies", "turns/cut_off"),
        *((f"turns {env}" if several else "turns", f"turns/{env}") for env in envs),
        ("learning rate", "optim/lr"),
    ]
    curves = [MetricCurve(label, stage.values(key)) for label, key in named]
    constant = {"learning rate", "turns", *(f"turns {env}" for env in envs)}
    return [c for c in curves if c.values and (c.varies or c.label not in constant)]


def money(state: RunState) -> str:
    """Return dollars spent, the budget, and what it will probably be; empty if nothing costs."""
    stage = state.current
    assert stage is not None
    assert is_training(stage.plan)
    limit, spent = stage.plan.budget.usd, stage.last.get("spend/usd")
    if spent is None or (not spent and limit is None):
        return ""
    before = state.spent_before
    text = f"${spent - before:,.2f}"
    text += f" of ${limit:,.2f}" if limit is not None else ""
    if left := stage.usd_left(before):
        text += f"   about ${left:,.2f} to come"
        if limit is not None and spent - before + left > limit:
            text += ": more than the budget"
    return text


def budget_share(state: RunState) -> float | None:
    """Return the share of its dollars that a stage has spent; None without such a budget."""
    stage = state.current
    assert stage is not None
    assert is_training(stage.plan)
    limit = stage.plan.budget.usd
    if not limit or (spent := stage.last.get("spend/usd")) is None:
        return None
    return min(1.0, float(spent - state.spent_before) / limit)


def throughput(metrics: Mapping[str, Any]) -> float:
    """Return how many tokens a step sampled and trained on in a second."""
    total = metrics["time/total"]
    return float(metrics["tokens/sampled"] + metrics["tokens/trained"]) / total if total else 0.0


def speed(metrics: Mapping[str, Any]) -> list[str]:
    """Return tokens a second, and where the time of the last step went."""
    total = metrics["time/total"]
    nodes = {k.removeprefix("time/"): v for k, v in metrics.items() if k.startswith("time/")}
    longest = sorted(
        ((v, k) for k, v in nodes.items() if k != "total" and "/" not in k and is_number(v)),
        reverse=True,
    )
    where = [f"{kind.replace('_', ' ')} {elapsed(took)}" for took, kind in longest[:3] if took]
    return [f"{throughput(metrics):,.0f} tokens/s", f"{elapsed(total)} a step", *where]


def service(metrics: Mapping[str, Any]) -> list[str]:
    """Say how many replies the service is asked for at once, and how often it was too many."""
    parts = []
    if (level := metrics.get("service/concurrency")) is not None:
        parts.append(f"{level:,.0f} replies at once")
    if backoffs := metrics.get("service/backoffs"):
        parts.append(f"backed off {backoffs:,.0f} times" if backoffs > 1 else "backed off once")
    if (waited := metrics.get("service/queue_wait", 0.0)) >= 1:
        parts.append(f"waited {elapsed(waited)} for their turn")
    return parts


def staleness(metrics: Mapping[str, Any]) -> str:
    """Say how old the weights were that the step was sampled from; empty if they were its own."""
    stale = metrics.get("rollouts/staleness")
    return f"{stale:.1f} steps stale" if stale else ""


def failed(failures: Mapping[str, int]) -> list[str]:
    """List the causes, the most frequent first."""
    ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return [f"{count:,} {cause}" for cause, count in ranked]


def remarks(metrics: Mapping[str, Any]) -> list[str]:
    """Return what is worth saying about a step only when it happens."""
    said = []
    if count := metrics.get("rollouts/failed"):
        causes = ", ".join(failed(failures_by_cause(metrics)))
        said.append(f"{count:.0f} rollouts failed" + f" ({causes})" * bool(causes))
    if overflown := metrics.get("rollouts/context_overflow"):
        said.append(f"{overflown:.0f} over the context")
    if metrics.get("optim/skipped"):
        counts = "reward/mean" in metrics
        why = "no rollout was better than its group" if counts else "no rollout could be used"
        said.append(f"{why}: no optimiser step")
    return said


def evaluation_line(plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> str:
    """Format results: ``heldout after step 20: pass@1 0.750   mean_reward 0.812``."""
    found = evaluation_results(metrics, plan.name)
    results = "   ".join(f"{name} {value:.3f}" for name, value in found.items())
    prefix = f"eval/{plan.name}/"
    missed, cut_off = metrics[f"{prefix}failed"], metrics.get(f"{prefix}cut_off")
    faults = f"   {missed:.0f} failed" * bool(missed)
    if cut_off:
        faults += f"   {cut_off:.0%} of the replies ran into max_tokens"
    return f"{plan.name} after step {step}: {results}{faults}"


def time_left(stage: StageState) -> str:
    """Return how long the stage will probably go on; empty before its first step."""
    left = stage.seconds_left
    return "" if left is None or not math.isfinite(left) else elapsed(left)
