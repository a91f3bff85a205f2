"""What is known of a run while it goes on. Nothing here draws."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import Factory, define, field

from rlc.plan import Evaluation, Plan, StagePlan, Training, evaluations_of, is_training
from rlc.report.findings import Finding, stage_findings
from rlc.runtime import Record, Rollout, TrainedSample, failures_by_cause, is_number, measure

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
        """The metrics of the last step; empty before the first."""
        return self.records[-1] if self.records else {}

    def values(self, key: str) -> list[float]:
        """Return a metric, of the steps that have it."""
        return self._series.get(key, [])

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the last steps; None before the first."""
        took = self.values("time/total")[-_RECENT:]
        return fmean(took) * (self.steps - self.done) if took and self.steps else None

    def usd_left(self, spent_before: float) -> float | None:
        """Return what is left to pay, estimated from the last steps; None if that is not known."""
        spent = [spent_before, *self.values("spend/usd")]
        recent = spent[-_RECENT - 1 :]
        if len(recent) < 2 or not self.steps:
            return None
        return (recent[-1] - recent[0]) / (len(recent) - 1) * (self.steps - self.done)


@define
class RunState:
    """A run as far as it is known.

    ``waiting``: what it waits for before it can go on with steps. ``playing``: how many groups, or
    tasks of an evaluation, are played, and of how many. ``episode``: the newest that was played;
    ``lesson``: a row that the running stage has learnt from.
    Times are those of one monotonic clock.
    """

    plan: Plan
    folder: Path
    began: float
    stages: dict[str, StageState] = field(
        default=Factory(lambda self: {s.name: StageState(s) for s in self.plan.stages}, True)
    )
    current: StageState | None = None
    waiting: str = ""
    since: float = 0.0
    playing: tuple[int, int] = (0, 0)
    episode: Rollout | None = None
    lesson: TrainedSample | None = None
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
        """Whether there is anything to show that is played, or learnt from."""
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


def measured(stage: StageState) -> tuple[str, str]:
    """Return the metric that a stage is watched by, and what it is called."""
    key = measure(stage.plan)  # type: ignore[arg-type]
    return key, key.partition("/")[0]


def envs_of(stage: StageState) -> list[str]:
    """Return the names of a stage's environments that its rewards are listed by."""
    return [env.name for env in stage.plan.rollouts.envs] if stage.plan.rollouts else []
