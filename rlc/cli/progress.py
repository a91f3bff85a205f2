"""A run on the terminal: a live display, or one line a step for logs and pipes."""

from __future__ import annotations

import sys
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

from rlc.plan.records import EvalPlan, Plan, TrainedPlan, TrainPlan
from rlc.plan.units import elapsed
from rlc.runtime.journal.metrics import evaluation_results, failures_by_cause, measure
from rlc.runtime.observer import Observer

_BARS = "▁▂▃▄▅▆▇█"
_CURVE_WIDTH = 48
_BESIDE_CURVE = 34  # columns that a curve leaves to its label, its numbers and the frame
_ECHO = 4  # columns beside the frame: `^C^C`, as a terminal echoes it, must not begin a line
_ETA_WINDOW = 8  # steps that the time left is estimated from


def sparkline(values: Sequence[float], width: int = _CURVE_WIDTH) -> str:
    """Draw a curve with block characters; longer series are averaged down to ``width``."""
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
class StageProgress:
    """The running stage so far, and its last step in words."""

    stage: TrainedPlan
    done: int
    values: list[float]  # of the stage's measure, one a step
    seconds: list[float] = field(factory=list)
    metrics: Mapping[str, Any] = field(factory=dict)
    groups: tuple[int, int] = (0, 0)
    failures: Counter[str] = field(factory=Counter)  # of the whole stage, by cause

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.done, self.metrics, self.groups = step, metrics, (0, 0)
        if (value := metrics.get(measure(self.stage))) is not None:  # None: no rollout counts
            self.values.append(value)
        self.seconds.append(metrics["time/total"])
        self.failures.update(failures_by_cause(metrics))

    @property
    def measure(self) -> str:
        """The metric that the stage is watched by, without its kind."""
        return measure(self.stage).partition("/")[0]

    @property
    def measured(self) -> str:
        """The stage's measure, six wide; a step without a usable rollout has none."""
        value = self.metrics.get(measure(self.stage))
        return f"{'none':>6}" if value is None else f"{value:6.3f}"

    @property
    def time_left(self) -> str:
        """Estimated from the last steps; needs at least one."""
        return elapsed(fmean(self.seconds[-_ETA_WINDOW:]) * (self.stage.steps - self.done))

    @property
    def tokens_per_second(self) -> float:
        tokens = self.metrics["tokens/sampled"] + self.metrics["tokens/trained"]
        return float(tokens / self.metrics["time/total"])

    @property
    def by_env(self) -> str:
        """The reward of each environment of a mixture."""
        envs = self.stage.envs if isinstance(self.stage, TrainPlan) else ()
        known = [e.name for e in envs if len(envs) > 1 and f"reward/{e.name}" in self.metrics]
        return "   ".join(f"{name} {self.metrics[f'reward/{name}']:.3f}" for name in known)

    @property
    def policy(self) -> str:
        """The policy, and how far it is from the sampler's, as far as that is defined."""
        return self._known(
            ("entropy", "entropy/mean", ".2g"),
            ("kl", "kl/sample_train", ".2g"),
            ("clipped", "policy/clip_fraction", ".0%"),
            ("ess", "policy/ess", ".0%"),
        )

    @property
    def batch(self) -> str:
        """The gradient, and the replies that were truncated."""
        return self._known(
            ("gradient norm", "optim/grad_norm", ".3g"),
            ("truncated replies", "turns/cut_off", ".0%"),
        )

    def _known(self, *shown: tuple[str, str, str]) -> str:
        """List the metrics that the last step has: label, metric, format."""
        values = ((label, self.metrics.get(key), spec) for label, key, spec in shown)
        return "   ".join(f"{label} {v:{spec}}" for label, v, spec in values if v is not None)

    @property
    def spent(self) -> str:
        """Dollars, against the budget if there is one; empty if nothing costs anything."""
        spent, limit = self.metrics.get("spend/usd"), self.stage.budget.usd
        if spent is None or (not spent and limit is None):
            return ""
        return f"${spent:.2f}" + (f" of ${limit:.2f}" if limit is not None else "")

    @property
    def service(self) -> str:
        """How many replies the service is asked for at once, and how often it was too many."""
        metrics, parts = self.metrics, []
        if (level := metrics.get("service/concurrency")) is not None:
            parts.append(f"{level:,.0f} replies at once")
        if backoffs := metrics.get("service/backoffs"):
            parts.append(f"backed off {backoffs:,.0f} times" if backoffs > 1 else "backed off once")
        if (waited := metrics.get("service/queue_wait", 0.0)) >= 1:
            parts.append(f"waited {elapsed(waited)} for their turn")
        return "   ".join(parts)

    @property
    def staleness(self) -> str:
        stale = self.metrics.get("rollouts/staleness")
        return f"{stale:.1f} steps on average" if stale else ""

    @property
    def remarks(self) -> str:
        """What is worth saying about a step only when it happens."""
        metrics, remarks = self.metrics, ""
        if failed := metrics.get("rollouts/failed"):
            causes = _by_cause(failures_by_cause(metrics)).replace("   ", ", ")
            remarks += f"  {failed:.0f} rollouts failed" + f" ({causes})" * bool(causes)
        if overflown := metrics.get("rollouts/context_overflow"):
            remarks += f"  {overflown:.0f} over the context"
        if metrics["optim/skipped"]:
            counts = "reward/mean" in metrics
            why = "no rollout was better than its group" if counts else "no rollout could be used"
            remarks += f"  {why}: no optimiser step"
        return remarks


def _by_cause(failures: Mapping[str, int]) -> str:
    """List the causes, the most frequent first."""
    ranked = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return "   ".join(f"{number:,} {cause}" for cause, number in ranked)


class QuietObserver(Observer):
    """What is not as one would expect, and nothing else."""

    def warning(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)


class PlainObserver(Observer):
    """One line a step, for logs and pipes."""

    _stage: StageProgress

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, plan: Plan, folder: Path) -> None:
        self.note(f"running {plan.recipe} (seed {plan.seed}) in {folder}")

    def stage_started(self, stage: TrainedPlan, done: int, values: Sequence[float]) -> None:
        self._stage = StageProgress(stage, done, list(values))
        if done:
            self.note(f"{stage.name}: going on after step {done} of {stage.steps}")

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        so_far = self._stage
        so_far.add(step, metrics)
        planned = so_far.stage.steps
        parts = [so_far.by_env, so_far.spent]
        if so_far.staleness:
            parts.append(f"stale by {so_far.staleness}")
        if metrics.get("service/backoffs"):
            parts.append(so_far.service.replace("   ", ", "))
        self.note(
            f"{metrics['stage']} {step:>{len(str(planned))}}/{planned}"
            f"  {so_far.measure} {so_far.measured}"
            f"  {so_far.tokens_per_second:7,.0f} tokens/s"
            f"  {metrics['time/total']:6.2f} s"
            f"  left {so_far.time_left}"
            + "".join(f"  {part}" for part in parts if part)
            + so_far.remarks
        )

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        self.note(evaluation_line(plan, step, metrics))

    def note(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class LiveObserver(Observer):
    """A display that is redrawn in place."""

    def __init__(self, console: Console) -> None:
        self._stage: StageProgress | None = None
        self._title = ""
        self._note = ""
        self._evaluation = ""
        self._started = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8)

    def started(self, plan: Plan, folder: Path) -> None:
        self._title = f"{plan.recipe} · seed {plan.seed} · {folder}"
        self._live.start()

    def stage_started(self, stage: TrainedPlan, done: int, values: Sequence[float]) -> None:
        self._stage = StageProgress(stage, done, list(values))

    def progress(self, done: int, planned: int) -> None:
        if self._stage is not None:
            self._stage.groups = (done, planned)

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        assert self._stage is not None
        self._stage.add(step, metrics)

    def evaluated(self, plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> None:
        self._evaluation = evaluation_line(plan, step, metrics)
        self.progress(0, 0)

    def note(self, text: str) -> None:
        self._note = text  # inside the panel: printing above it would tear it

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        if self._stage is None:
            return Text("loading the model …", style="dim")
        so_far, stage, (played, planned) = self._stage, self._stage.stage, self._stage.groups
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="dim", justify="right")
        grid.add_column()
        playing = f"   playing group {played} of {planned}" if planned else ""
        grid.add_row(f"{stage.name} step", f"{so_far.done} of {stage.steps}{playing}")
        room = self._live.console.width - _BESIDE_CURVE - len(stage.name)
        room = max(8, min(_CURVE_WIDTH, room))
        grid.add_row("", ProgressBar(total=stage.steps, completed=so_far.done, width=room))
        if so_far.values:
            curve = Text(f"{so_far.values[-1]:.3f}  ", style="bold")
            curve.append(sparkline(so_far.values, room), style="green")
            curve.append(f"  from {so_far.values[0]:.3f}", style="dim")
            grid.add_row(so_far.measure, curve)
        if so_far.metrics:
            running = elapsed(time.monotonic() - self._started)
            rows = {
                "by env": so_far.by_env,
                "policy": so_far.policy,
                "batch": so_far.batch,
                "speed": f"{so_far.tokens_per_second:,.0f} tokens/s",
                "time": f"{running}   left {so_far.time_left}",
                "spent": so_far.spent,
                "service": so_far.service,
                "staleness": so_far.staleness,
                "failed so far": _by_cause(so_far.failures),
                "note": so_far.remarks.strip(),
            }
            for label, text in rows.items():
                if text:
                    grid.add_row(label, text)
        if self._evaluation:
            grid.add_row("evaluated", self._evaluation)
        if self._note:
            grid.add_row("", Text(self._note, style="yellow"))
        return Panel(
            grid,
            title=Text(self._title),
            title_align="left",
            border_style="dim",
            padding=(0, 1),
            width=self._live.console.width - _ECHO,
        )


def evaluation_line(plan: EvalPlan, step: int, metrics: Mapping[str, Any]) -> str:
    """Format results: ``heldout after step 20: pass@1 0.750   mean_reward 0.812``."""
    found = evaluation_results(metrics, plan.name)
    results = "   ".join(f"{name} {value:.3f}" for name, value in found.items())
    prefix = f"eval/{plan.name}/"
    failed, cut_off = metrics[f"{prefix}failed"], metrics.get(f"{prefix}cut_off")
    faults = f"   {failed:.0f} failed" * bool(failed)
    if cut_off:
        faults += f"   {cut_off:.0%} of the replies ran into max_tokens"
    return f"{plan.name} after step {step}: {results}{faults}"
