"""A run while it goes on: its stages with their metrics, and these in words. Nothing here draws."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import Factory, define, field, frozen

from rlc.catalog import WatchedMetric, roles_of
from rlc.plan import (
    OUTCOMES,
    Evaluation,
    Plan,
    StagePlan,
    Training,
    elapsed,
    evaluations_of,
    in_dollars,
    is_training,
)
from rlc.report.findings import Finding, stage_findings
from rlc.runtime import (
    Record,
    Rollout,
    TrainedSample,
    evaluation_results,
    failures_by_cause,
    is_number,
    watched_so_far,
)

_RECENT = 8  # steps that what is left is estimated from


@define
class StageState:
    """A stage and the metrics of its steps; of an evaluation, of each time it was done."""

    plan: StagePlan
    records: list[Record] = field(factory=list)
    done: int = 0  # steps
    ended: bool = False
    failures: Counter[str] = field(factory=Counter)  # by cause
    retried: int = 0
    played: int = 0
    findings: list[Finding] = field(factory=list)
    _series: dict[str, list[float]] = field(factory=dict)  # each metric, of the steps that have it

    def began(self, done: int, known: Sequence[Record]) -> None:
        """Begin, or go on after so many steps, whose metrics are among those known."""
        self.records, self.failures, self.done, self._series = [], Counter(), done, {}
        self.retried = self.played = 0
        for record in known:
            if int(record["step"]) <= done:
                self.add(record)

    def add(self, metrics: Mapping[str, Any]) -> None:
        self.records.append(dict(metrics))
        for key, value in metrics.items():
            if is_number(value):
                self._series.setdefault(key, []).append(float(value))
        self.done = max(self.done, int(metrics["step"]))
        self.failures.update(failures_by_cause(metrics))
        self.retried += int(metrics.get("rollouts/retried", 0))
        self.played += int(metrics.get("rollouts/played", 0) + metrics.get("rollouts/failed", 0))
        self.findings = stage_findings(self.plan, self.records)
        self.ended = self.ended or self.done == self.steps

    @property
    def steps(self) -> int | None:
        return self.plan.steps if is_training(self.plan) else None

    @property
    def last(self) -> Record:
        return self.records[-1] if self.records else {}

    def values(self, key: str) -> list[float]:
        return self._series.get(key, [])

    @property
    def envs(self) -> list[str]:
        return [env.name for env in self.plan.rollouts.envs] if self.plan.rollouts else []

    @property
    def watched(self) -> list[WatchedMetric]:
        """What the stage is about, the main metric first, without what was 0 in all steps."""
        return watched_so_far(self.plan, self.records)

    @property
    def time_left(self) -> str:
        """How long the stage will probably go on; empty before its first step."""
        took = self.values("time/total")[-_RECENT:]
        left = fmean(took) * (self.steps - self.done) if took and self.steps else math.nan
        return elapsed(left) if math.isfinite(left) else ""

    def usd_left(self, spent_before: float) -> float | None:
        """Return the dollars still to pay, estimated from the last steps; None if not known."""
        spent = [spent_before, *self.values("spend/usd")]
        recent = spent[-_RECENT - 1 :]
        if len(recent) < 2 or not self.steps:
            return None
        return (recent[-1] - recent[0]) / (len(recent) - 1) * (self.steps - self.done)

    def health(self) -> list[MetricCurve]:
        """Return what shows whether training is sound, the most telling first."""
        several = len(self.envs) > 1
        named = [
            ("kl", "kl/sample_train"),
            ("kl reference", "kl/reference"),
            ("entropy", "entropy/mean"),
            ("gradient norm", "optim/grad_norm"),
            *((f"length {env}" if several else "length", f"length/{env}") for env in self.envs),
            ("clipped", "policy/clip_fraction"),
            ("ess", "policy/ess"),
            ("equal groups", "groups/constant"),
            ("cut replies", "turns/cut_off"),
            *((f"turns {env}" if several else "turns", f"turns/{env}") for env in self.envs),
            ("learning rate", "optim/lr"),
        ]
        curves = [MetricCurve(label, self.values(key)) for label, key in named]
        constant = {"learning rate", "turns", *(f"turns {env}" for env in self.envs)}
        return [c for c in curves if c.values and (c.varies or c.label not in constant)]


@define
class RunState:
    """A run as far as it is known. Times are of a monotonic clock."""

    plan: Plan
    folder: Path
    began: float
    stages: dict[str, StageState] = field(
        default=Factory(lambda self: {s.name: StageState(s) for s in self.plan.stages}, True)
    )
    current: StageState | None = None
    waiting: str = ""  # what for, before it can go on with steps
    since: float = 0.0  # when it began to wait
    playing: tuple[int, int] = (0, 0)  # groups, or tasks of an evaluation: done, and of how many
    episode: Rollout | None = None  # the newest
    lesson: TrainedSample | None = None  # a row that the running stage has learnt from
    notes: deque[str] = field(factory=lambda: deque(maxlen=20))

    def wait(self, what: str, now: float) -> None:
        self.waiting, self.since, self.playing = what, now, (0, 0)

    def stage_started(self, stage: Training, done: int, known: Sequence[Record]) -> None:
        """Begin a stage; what came before it in the plan has ended."""
        names = list(self.stages)
        for name in names[: names.index(stage.name)]:
            if self.stages[name].plan.trains:
                self.stages[name].ended = True
        self.current, self.waiting, self.playing = self.stages[stage.name], "", (0, 0)
        self.lesson = None
        self.current.began(done, [r for r in known if r["stage"] == stage.name])
        for evaluation in self.evaluations:
            evaluation.began(done, [r for r in known if r["stage"] == evaluation.plan.name])

    def step(self, metrics: Mapping[str, Any]) -> None:
        assert self.current is not None
        self.waiting, self.playing = "", (0, 0)
        self.current.add(metrics)

    def evaluated(self, plan: Evaluation, metrics: Mapping[str, Any]) -> None:
        self.waiting, self.playing = "", (0, 0)
        state = self.stages[plan.name]
        state.add(metrics)
        subject = self.stages.get(plan.after or "")
        state.ended = subject is None or subject.done == subject.steps

    @property
    def has_sample(self) -> bool:
        return self.episode is not None or self.lesson is not None

    @property
    def evaluations(self) -> list[StageState]:
        """The evaluations of the stage that runs."""
        if self.current is None or not is_training(self.current.plan):
            return []
        found = evaluations_of(self.current.plan, self.plan.stages)
        return [self.stages[plan.name] for plan in found]

    @property
    def spent_before(self) -> float:
        """Dollars spent before the stage that runs."""
        spent = 0.0
        for stage in self.stages.values():
            if stage is self.current:
                break
            spent = max([spent, *stage.values("spend/usd")[-1:]])
        return spent

    def learning(self, stage: StageState) -> list[MetricCurve]:
        """Return what a stage is watched by: in all, by environment and role, by evaluation."""
        named = dict[str, str]()  # by the metric
        several = len(stage.envs) if len(stage.envs) > 1 else 0
        for metric in stage.watched:
            named |= {part.key: part.label for part in (metric, *metric.parts[:several])}
            named[metric.held_out] = f"held-out {metric.name}"
        for env in stage.plan.rollouts.envs if stage.plan.rollouts is not None else ():
            for role in roles_of(env):
                if env.play is None:
                    named[f"reward/{env.name}/{role}"] = f"{env.name} {role}"
                    continue
                for one in OUTCOMES:
                    named[f"env/{env.name}/{role}/{one}"] = f"{env.name} {role} {one}"
        curves = [
            MetricCurve(label, stage.values(key), watched=True) for key, label in named.items()
        ]
        for evaluation in self.evaluations:
            of = evaluation.plan.name
            for one in evaluation_results(evaluation.last, of):
                values = evaluation.values(f"eval/{of}/{one}")
                curves.append(MetricCurve(f"{of} {one}", values, watched=True))
        return [curve for curve in curves if curve.values]

    def money(self, stage: StageState) -> tuple[str, float | None]:
        """Return dollars spent and to come as text, and the share of the budget, or None."""
        assert is_training(stage.plan)
        limit, spent = stage.plan.budget.usd, stage.last.get("spend/usd")
        if spent is None or (not spent and limit is None):
            return "", None
        before = self.spent_before
        text = in_dollars(spent - before)
        text += f" of {in_dollars(limit)}" if limit is not None else ""
        if left := stage.usd_left(before):
            text += f"   about {in_dollars(left)} to come"
            if limit is not None and spent - before + left > limit:
                text += ": more than the budget"
        return text, min(1.0, float(spent - before) / limit) if limit else None


_NOISE = 1e-6


@frozen
class MetricCurve:
    """A metric of each step so far. ``watched``: the stage is judged by it."""

    label: str
    values: list[float]
    watched: bool = False

    @property
    def last(self) -> str:
        return number(self.values[-1])

    @property
    def varies(self) -> bool:
        """Whether there is a curve to see; the last bits of a sum in float32 are noise."""
        low, high = min(self.values), max(self.values)
        return low < high and (high - low > _NOISE or not self.label.startswith(("kl", "ess")))


def number(value: float) -> str:
    """Format a number in at most eight columns: ``0.854``, ``30.5``, ``1,474``, ``1.2e-08``."""
    if not value or 0.01 <= abs(value) < 100:
        return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    if abs(value) < 0.01:
        return f"{value:.2g}"
    return f"{value:,.0f}" if 100 <= abs(value) < 1e6 else f"{value:.1e}"


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
    """Return how many replies the service samples at once, and how often it was too many."""
    parts = []
    if (level := metrics.get("service/concurrency")) is not None:
        parts.append(f"{level:,.0f} replies at once")
    if backoffs := metrics.get("service/backoffs"):
        parts.append(f"backed off {backoffs:,.0f} times" if backoffs > 1 else "backed off once")
    if (waited := metrics.get("service/queue_wait", 0.0)) >= 1:
        parts.append(f"waited {elapsed(waited)} for their turn")
    return parts


def staleness(metrics: Mapping[str, Any]) -> str:
    """Return how stale the weights were that a step was sampled from; empty if they were not."""
    stale = metrics.get("rollouts/staleness")
    return f"{stale:.1f} steps stale" if stale else ""


def failed(failures: Mapping[str, int]) -> list[str]:
    """Return the causes of failures, the most frequent first."""
    ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return [f"{count:,} {cause}" for cause, count in ranked]


def remarks(metrics: Mapping[str, Any]) -> list[str]:
    """Return the events of a step that most steps have none of."""
    found = []
    if count := metrics.get("rollouts/failed"):
        causes = ", ".join(failed(failures_by_cause(metrics)))
        found.append(f"{count:.0f} rollouts failed" + f" ({causes})" * bool(causes))
    if overflown := metrics.get("rollouts/context_overflow"):
        found.append(f"{overflown:.0f} over the context")
    if metrics.get("optim/skipped"):
        rewarded = "reward/mean" in metrics
        why = "no rollout was better than its group" if rewarded else "no rollout could be used"
        found.append(f"{why}: no optimiser step")
    return found


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
