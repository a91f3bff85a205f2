"""How a run shows on a terminal: a live display, or one line a step where there is none."""

from __future__ import annotations

import time
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

from rlc.plan.tree import EvalPlan, Plan, SftPlan, TrainPlan
from rlc.run.metrics import measure

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 48
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


def duration(seconds: float) -> str:
    """``0:42``, ``12:05``, ``3:07:00``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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

    def begin(self, stage: TrainPlan | SftPlan, done: int, values: Sequence[float]) -> None:
        self.stage, self.planned, self.done = stage, stage.steps, done
        self.values = list(values)
        self.seconds, self.metrics, self.groups = [], {}, (0, 0)

    @property
    def measure(self) -> str:
        """The metric that the stage is watched by, without its kind."""
        return measure(self.stage).partition("/")[0] if self.stage else ""

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.done, self.metrics, self.groups = step, metrics, (0, 0)
        assert self.stage is not None
        self.values.append(metrics[measure(self.stage)])
        self.seconds.append(metrics["time/total"])

    def time_left(self) -> float:
        """Seconds, at the pace of the last steps; needs at least one."""
        return fmean(self.seconds[-_ETA_WINDOW:]) * (self.planned - self.done)

    def tokens_per_second(self) -> float:
        tokens = self.metrics["tokens/sampled"] + self.metrics["tokens/trained"]
        return float(tokens / self.metrics["time/total"])


class PlainObserver:
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

    def progress(self, done: int, planned: int) -> None:
        pass

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        series = self._series
        series.add(step, metrics)
        left = series.time_left()
        self._print(
            f"{metrics['stage']} {step:>{len(str(series.planned))}}/{series.planned}"
            f"  {series.measure} {series.values[-1]:6.3f}"
            f"  {series.tokens_per_second():7,.0f} tokens/s"
            f"  {metrics['time/total']:6.2f} s"
            f"  left {duration(left)}" + _remarks(metrics)
        )

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        self._print(evaluation_line(plan, step, metrics))

    def note(self, text: str) -> None:
        self._print(text)

    def close(self) -> None:
        pass

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class LiveObserver:
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
        for label, value in _rows(series, series.stage, time.monotonic() - self._started):
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
        if name.startswith(prefix) and name != f"{prefix}failed"
    )
    failed = metrics[f"{prefix}failed"]
    return f"{plan.name} after step {step}: {results}" + f"   {failed:.0f} failed" * bool(failed)


def _rows(
    series: _Series, stage: TrainPlan | SftPlan, elapsed: float
) -> list[tuple[str, RenderableType | str]]:
    """The lines of the live display."""
    played, planned = series.groups
    step = f"{series.done} of {stage.steps}"
    if planned:
        step += f"   playing group {played} of {planned}"
    bar = ProgressBar(total=stage.steps, completed=series.done, width=_CURVE_WIDTH)
    rows: list[tuple[str, RenderableType | str]] = [(f"{stage.name} step", step), ("", bar)]
    if not series.values:
        return rows
    curve = Text(f"{series.values[-1]:.3f}  ", style="bold")
    curve.append(sparkline(series.values), style="green")
    curve.append(f"  from {series.values[0]:.3f}", style="dim")
    rows.append((series.measure, curve))
    if series.metrics:
        rows.extend(_metric_rows(series, stage, elapsed))
    return rows


def _metric_rows(
    series: _Series, stage: TrainPlan | SftPlan, elapsed: float
) -> list[tuple[str, str]]:
    metrics, rows = series.metrics, []
    if isinstance(stage, TrainPlan) and len(stage.envs) > 1:
        parts = [
            f"{env.name} {metrics[f'reward/{env.name}']:.3f}"
            for env in stage.envs
            if f"reward/{env.name}" in metrics
        ]
        rows.append(("by env", "   ".join(parts)))
    rows.append(("speed", f"{series.tokens_per_second():,.0f} tokens/s"))
    rows.append(("time", f"{duration(elapsed)}   left {duration(series.time_left())}"))
    if "spend/usd" in metrics and stage.budget.usd is not None:
        rows.append(("spent", f"${metrics['spend/usd']:.2f} of ${stage.budget.usd:.2f}"))
    if remarks := _remarks(metrics).strip():
        rows.append(("note", remarks))
    return rows


def _remarks(metrics: Mapping[str, Any]) -> str:
    """What is worth saying about a step only when it happens."""
    remarks = ""
    if failed := metrics.get("rollouts/failed"):
        remarks += f"  {failed:.0f} rollouts failed"
    if overflown := metrics.get("rollouts/context_overflow"):
        remarks += f"  {overflown:.0f} over the context"
    if metrics["optim/skipped"]:
        remarks += "  no rollout was better than its group: no optimiser step"
    return remarks
