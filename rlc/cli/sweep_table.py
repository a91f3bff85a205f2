"""The progress of a sweep: a line a trial, or a table that is redrawn in place."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rlc.plan import SweepPlan, Trial, elapsed, in_dollars, values_text
from rlc.sweeps import ConfigurationResult, SweepObserver, SweepSummary, TrialRecord, ranked

_STYLES = {
    "running": "cyan",
    "finished": "green",
    "pruned": "dim",
    "decided": "dim",
    "failed": "red",
}
_STYLES |= {"budget": "yellow", "interrupted": "yellow", "waiting": "dim"}


class PlainSweep(SweepObserver):
    """Prints a line for each trial that begins or ends, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def started(self, plan: SweepPlan, size: int, folder: Path) -> None:
        self.note(f"sweep {plan.name}: {size:,} trials of {plan.of} in {folder}")

    def trial(self, record: TrialRecord) -> None:
        trial = record.trial
        if record.state == "waiting":
            return
        name = f"trial {trial.number} seed {trial.seed} ({values_text(trial.configuration)})"
        value = "" if record.value is None else f" {record.value:.4f}"
        cause = f": {record.cause}" if record.cause else ""
        self.note(f"{name} {record.state}{value}{cause}")

    def note(self, text: str) -> None:
        self._console.print(text, soft_wrap=True, markup=False)


class LiveSweep(SweepObserver):
    """A table of the trials that run and of the best so far."""

    _MOST = 12  # rows

    def __init__(self, console: Console) -> None:
        self._lock = threading.Lock()
        self._title, self._note, self._spent, self._size = "", "", 0.0, 0
        self._plan: SweepPlan | None = None
        self._records: dict[str, TrialRecord] = {}
        self._steps: dict[str, str] = {}
        self._last: dict[str, float] = {}
        self._since = time.monotonic()
        self._live = Live(
            console=console, get_renderable=self._render, refresh_per_second=4, transient=True
        )

    def started(self, plan: SweepPlan, size: int, folder: Path) -> None:
        self._plan, self._size = plan, size
        self._title = f"sweep {plan.name} of {plan.of} · {folder}"
        self._live.start()

    def trial(self, record: TrialRecord) -> None:
        with self._lock:
            self._records[record.trial.id] = record

    def step(
        self, trial: Trial, stage: str, step: int, of: int, metrics: Mapping[str, Any]
    ) -> None:
        keys = (self._plan.metric.key if self._plan else "", "reward/mean", "loss/mean")
        value = next((metrics[key] for key in keys if key in metrics), None)
        shown = "" if value is None else f"  {float(value):.3f}"
        self._steps[trial.id] = f"{stage} {step}/{of}{shown}"

    def measured(self, trial: Trial, step: int, value: float) -> None:  # noqa: ARG002
        self._last[trial.id] = value

    def spent(self, usd: float) -> None:
        self._spent = usd

    def note(self, text: str) -> None:
        self._note = text

    def close(self) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        if self._plan is None:
            return Text("")
        with self._lock:
            records = list(self._records.values())
        ended = sum(record.ended for record in records)
        spent = f" · {in_dollars(self._spent)}" if self._spent else ""
        running = elapsed(time.monotonic() - self._since)
        title = f"{self._title} · {ended} of {self._size} · {running}{spent}"
        table = Table(title=Text(title), title_justify="left", box=None, header_style="dim")
        for name in ("", "configuration", "seed", "state", self._plan.metric.name):
            table.add_column(name, justify="right" if name in ("", "seed") else "left")
        now = [record for record in records if record.state == "running"]
        for record in now:
            trial, last = record.trial, self._last.get(record.trial.id)
            steps = Text(self._steps.get(trial.id, "starting"), "cyan")
            value = "" if last is None else f"{last:.4f}"
            values = values_text(trial.configuration)
            table.add_row(str(trial.number), values, str(trial.seed), steps, value)
        for result in ranked(self._plan, records)[: self._MOST - len(now)]:
            if result.mean is not None:
                table.add_row(*_row(result))
        if self._note:
            table.caption = Text(self._note, "yellow")
        return table


def _row(result: ConfigurationResult) -> tuple[RenderableType, ...]:
    """Return the number of a configuration, its values, seeds, state, mean and margin."""
    states = dict.fromkeys(record.state for record in result.trials)
    shown = Text(", ").join(Text(state, _STYLES[state]) for state in states)
    done = sum(record.state == "finished" for record in result.trials)
    value = "" if result.mean is None else f"{result.mean:.4f}"
    value += "" if result.margin is None else f" ± {result.margin:.4f}"
    seeds = f"{done}/{len(result.trials)}"
    return str(result.number), values_text(result.configuration), seeds, shown, value


def _indented(lines: Sequence[str]) -> list[str]:
    return [line if i == 0 else f"  {line}" for i, line in enumerate(lines)]


def print_result(console: Console, summary: SweepSummary) -> None:
    metric = summary.plan.metric
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for name in ("", "configuration", "seeds", "state", metric.name):
        table.add_column(name, justify="right" if name in ("", "seeds") else "left")
    for result in summary.results:
        table.add_row(*_row(result))
    console.print(table)
    if any(result.margin is not None for result in summary.results):
        console.print("± half of a 95 % interval of the mean over the seeds (Student's t)")
    lines = [line for claim in summary.claims for line in _indented(claim.lines)]
    if summary.best is not None:
        lines.append(f"best: {summary.best.trials[0].trial.options}")
    counts = {state: sum(r.state == state for r in summary.trials) for state in _STYLES}
    states = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    spent = f", {in_dollars(summary.spent_usd)} spent" if summary.spent_usd else ""
    lines.append(f"{summary.state}: {states}{spent}; {summary.folder}")
    lines += [summary.cause] if summary.cause else []
    for record in summary.failed:
        where = f"trial {record.trial.number}, seed {record.trial.seed}"
        lines.append(f"{where} failed: {record.cause}")
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
