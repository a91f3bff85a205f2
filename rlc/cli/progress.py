"""How a run shows on a terminal: a live display, or one line a step where there is none."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from attrs import define, field
from rich.console import Console, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlc.plan.records import EvalPlan, Plan, SftPlan, TrainPlan
from rlc.plan.units import elapsed
from rlc.runtime.journal.metrics import measure
from rlc.runtime.observer import Observer

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 48
_BESIDE_CURVE = 34  # columns that a curve leaves to its label, its numbers and the frame
_ETA_WINDOW = 8  # steps that the time left is estimated from


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """A curve of block characters; longer series are averaged down to ``width``."""
    if not values:
        return ""
    count = min(width, len(values))
    cuts = [round(i * len(values) / count) for i in range(count + 1)]
    points = [fmean(values[a:b]) for a, b in pairwise(cuts)]
    low, high = min(points), max(points)
    if low == high:
        return _BARS[0] * count
    scale = (len(_BARS) - 1) / (high - low)
    return "".join(_BARS[round((point - low) * scale)] for point in points)


@define
class _Series:
    """What the displays remember of the running stage."""

    stage: TrainPlan | SftPlan | None = None
    planned: int = 0
    done: int = 0
    values: list[float] = field(factory=list)  # of the stage's measure, one a step
    seconds: list[float] = field(factory=list)
    metrics: Mapping[str, Any] = field(factory=dict)
    groups: tuple[int, int] = (0, 0)
    failures: Counter[str] = field(factory=Counter)  # of the whole stage, by cause

    def begin(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        self.stage, self.planned, self.done = stage, stage.steps, done
        self.values = list(values)
        self.seconds, self.metrics, self.groups = [], {}, (0, 0)
        self.failures = Counter()

    @property
    def measure(self) -> str:
        """The metric that the stage is watched by, without its kind."""
        return measure(self.stage).partition("/")[0] if self.stage else ""

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.done, self.metrics, self.groups = step, metrics, (0, 0)
        assert self.stage is not None
        if (value := metrics.get(measure(self.stage))) is not None:  # None: no rollout counts
            self.values.append(value)
        self.seconds.append(metrics["time/total"])
        self.failures.update(_failures(metrics))

    def time_left(self) -> float:
        """Seconds, at the pace of the last steps; needs at least one."""
        return fmean(self.seconds[-_ETA_WINDOW:]) * (self.planned - self.done)

    def tokens_per_second(self) -> float:
        tokens = self.metrics["tokens/sampled"] + self.metrics["tokens/trained"]
        return float(tokens / self.metrics["time/total"])


class PlainObserver(Observer):
    """One line a step, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._series = _Series()

    def started(self, plan: Plan, folder: Path) -> None:
        self._print(f"running {plan.recipe} (seed {plan.seed}) in {folder}")

    def stage_started(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        self._series.begin(stage, done, values)
        if done:
            self._print(f"{stage.name}: going on after step {done} of {stage.steps}")

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        series = self._series
        series.add(step, metrics)
        assert series.stage is not None
        stage = series.stage
        left = series.time_left()
        self._print(
            f"{metrics['stage']} {step:>{len(str(series.planned))}}/{series.planned}"
            f"  {series.measure} {_measured(metrics, stage)}"
            f"  {series.tokens_per_second():7,.0f} tokens/s"
            f"  {metrics['time/total']:6.2f} s"
            f"  left {elapsed(left)}" + _plain_remarks(metrics, stage)
        )

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        self._print(evaluation_line(plan, step, metrics))

    def note(self, text: str) -> None:
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class LiveObserver(Observer):
    """A display that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._series = _Series()
        self._title = ""
        self._note = ""
        self._evaluation = ""
        self._started = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8)

    def started(self, plan: Plan, folder: Path) -> None:
        self._title = f"{plan.recipe} · seed {plan.seed} · {folder}"
        self._live.start()

    def stage_started(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        self._series.begin(stage, done, values)

    def progress(self, done: int, planned: int) -> None:
        self._series.groups = (done, planned)

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        self._series.add(step, metrics)

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        self._evaluation = evaluation_line(plan, step, metrics)
        self._series.groups = (0, 0)

    def note(self, text: str) -> None:
        self._note = text  # inside the panel: printing above it would tear it

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        series = self._series
        if series.stage is None:
            return Text("loading the model …", style="dim")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        running, width = time.monotonic() - self._started, self._live.console.width
        for label, value in _rows(series, series.stage, running, width):
            grid.add_row(label, value)
        if self._evaluation:
            grid.add_row("evaluated", self._evaluation)
        if self._note:
            grid.add_row("", Text(self._note, style="yellow"))
        return Panel(
            grid, title=Text(self._title), title_align="left", border_style="dim", padding=(0, 1)
        )


def evaluation_line(plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> str:
    """``heldout after step 20: pass@1 0.750   mean_reward 0.812``."""
    prefix = f"eval/{plan.name}/"
    results = "   ".join(
        f"{name.removeprefix(prefix)} {value:.3f}"
        for name, value in metrics.items()
        if name.startswith(prefix) and name not in (f"{prefix}failed", f"{prefix}cut_off")
    )
    failed, cut_off = metrics[f"{prefix}failed"], metrics.get(f"{prefix}cut_off")
    faults = f"   {failed:.0f} failed" * bool(failed)
    if cut_off:
        faults += f"   {cut_off:.0%} of the replies ran into max_tokens"
    return f"{plan.name} after step {step}: {results}{faults}"


def _rows(
    series: _Series, stage: TrainPlan | SftPlan, running: float, width: int
) -> list[tuple[str, RenderableType | str]]:
    """The lines of the live display, on a terminal of ``width`` columns."""
    played, planned = series.groups
    step = f"{series.done} of {stage.steps}"
    if planned:
        step += f"   playing group {played} of {planned}"
    room = max(8, min(_CURVE_WIDTH, width - _BESIDE_CURVE - len(stage.name)))
    bar = ProgressBar(total=stage.steps, completed=series.done, width=room)
    rows: list[tuple[str, RenderableType | str]] = [(f"{stage.name} step", step), ("", bar)]
    if series.values:
        curve = Text(f"{series.values[-1]:.3f}  ", style="bold")
        curve.append(sparkline(series.values, room), style="green")
        curve.append(f"  from {series.values[0]:.3f}", style="dim")
        rows.append((series.measure, curve))
    if series.metrics:
        rows.extend(_metric_rows(series, stage, running))
    return rows


def _metric_rows(
    series: _Series, stage: TrainPlan | SftPlan, running: float
) -> list[tuple[str, str]]:
    metrics, rows = series.metrics, []
    if by_env := _by_env(metrics, stage):
        rows.append(("by env", by_env))
    rows.append(("speed", f"{series.tokens_per_second():,.0f} tokens/s"))
    rows.append(("time", f"{elapsed(running)}   left {elapsed(series.time_left())}"))
    known = (
        ("spent", _spent(metrics, stage)),
        ("service", _service(metrics)),
        ("staleness", _staleness(metrics)),
        ("failed so far", _by_cause(series.failures)),
        ("note", _remarks(metrics).strip()),
    )
    return rows + [(label, text) for label, text in known if text]


def _measured(metrics: Mapping[str, Any], stage: TrainPlan | SftPlan) -> str:
    """The stage's measure in this step, six wide; a step without a usable rollout has none."""
    value = metrics.get(measure(stage))
    return f"{'none':>6}" if value is None else f"{value:6.3f}"


def _spent(metrics: Mapping[str, Any], stage: TrainPlan | SftPlan) -> str:
    """Dollars, against the budget where there is one; nothing where nothing costs."""
    spent, limit = metrics.get("spend/usd"), stage.budget.usd
    if spent is None or (not spent and limit is None):
        return ""
    return f"${spent:.2f}" + (f" of ${limit:.2f}" if limit is not None else "")


def _service(metrics: Mapping[str, Any]) -> str:
    """How many replies the service is given at once, and how often it was too many."""
    parts = []
    if (level := metrics.get("service/concurrency")) is not None:
        parts.append(f"{level:,.0f} replies at once")
    if backoffs := metrics.get("service/backoffs"):
        parts.append(f"backed off {backoffs:,.0f} times" if backoffs > 1 else "backed off once")
    if (waited := metrics.get("service/queue_wait", 0.0)) >= 1:
        parts.append(f"waited {elapsed(waited)} for their turn")
    return "   ".join(parts)


def _staleness(metrics: Mapping[str, Any]) -> str:
    stale = metrics.get("rollouts/staleness")
    return f"{stale:.1f} steps on average" if stale else ""


def _failures(metrics: Mapping[str, Any]) -> dict[str, int]:
    """Failed rollouts of a step by cause."""
    prefix = "failures/"
    return {
        key.removeprefix(prefix): int(number)
        for key, number in metrics.items()
        if key.startswith(prefix)
    }


def _by_cause(failures: Mapping[str, int]) -> str:
    """The most frequent first."""
    ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return "   ".join(f"{number:,} {cause}" for cause, number in ranked)


def _plain_remarks(metrics: Mapping[str, Any], stage: TrainPlan | SftPlan) -> str:
    """What the live display has lines of its own for, and what happened."""
    parts = [_by_env(metrics, stage), _spent(metrics, stage)]
    if stale := _staleness(metrics):
        parts.append(f"stale by {stale}")
    if metrics.get("service/backoffs"):
        parts.append(_service(metrics).replace("   ", ", "))
    return "".join(f"  {part}" for part in parts if part) + _remarks(metrics)


def _by_env(metrics: Mapping[str, Any], stage: TrainPlan | SftPlan) -> str:
    """The reward of each environment of a mixture."""
    envs = stage.envs if isinstance(stage, TrainPlan) and len(stage.envs) > 1 else ()
    parts = [
        f"{env.name} {metrics[f'reward/{env.name}']:.3f}"
        for env in envs
        if f"reward/{env.name}" in metrics
    ]
    return "   ".join(parts)


def _remarks(metrics: Mapping[str, Any]) -> str:
    """What is worth saying about a step only when it happens."""
    remarks = ""
    if failed := metrics.get("rollouts/failed"):
        causes = _by_cause(_failures(metrics)).replace("   ", ", ")
        remarks += f"  {failed:.0f} rollouts failed" + f" ({causes})" * bool(causes)
    if overflown := metrics.get("rollouts/context_overflow"):
        remarks += f"  {overflown:.0f} over the context"
    if metrics["optim/skipped"]:
        counts = "reward/mean" in metrics
        why = "no rollout was better than its group" if counts else "no rollout could be used"
        remarks += f"  {why}: no optimiser step"
    return remarks
