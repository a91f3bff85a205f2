"""Observers of a run: the live view, a line a step, or nothing but warnings."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from rlc.cli.live.frame import frame
from rlc.cli.live.lines import plain
from rlc.cli.live.screen import Screen
from rlc.cli.live.state import RunState, StageState, envs_of, measured
from rlc.cli.live.words import (
    evaluation_line,
    money,
    remarks,
    service,
    staleness,
    throughput,
    time_left,
)
from rlc.plan import Evaluation, Plan, Training, elapsed
from rlc.runtime import Observer, Record, Rollout, TrainedSample, read_metrics

_SILENCE = 60  # seconds after which a log says how far a step is


class QuietObserver(Observer):
    """What is not as one would expect, and nothing else."""

    def warning(self, text: str) -> None:
        print(f"warning: {text}", file=sys.stderr)


class RunObserver(Observer):
    """Keeps the state of a run, which other threads may read under ``lock``."""

    def __init__(self, plan: Plan, folder: Path, clock: Callable[[], float]) -> None:
        self.state, self.clock = RunState(plan, folder, clock()), clock
        self.lock = threading.Lock()

    def waiting(self, what: str) -> None:
        with self.lock:
            self.state.wait(what, self.clock())
        self.changed()

    def stage_started(self, stage: Training, done: int, values: Sequence[float]) -> None:  # noqa: ARG002
        known = read_metrics(self.state.folder) if done else list[Record]()
        with self.lock:
            self.state.stage_started(stage, done, known)
        self.changed()

    def progress(self, done: int, planned: int) -> None:
        with self.lock:
            self.state.playing = (done, planned)
        self.changed()

    def played(self, members: Sequence[Rollout]) -> None:
        with self.lock:
            self.state.episode = members[-1]

    def learnt(self, lesson: TrainedSample) -> None:
        with self.lock:
            self.state.lesson = lesson

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:  # noqa: ARG002
        with self.lock:
            self.state.step(metrics)
        self.changed()

    def evaluated(self, plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> None:  # noqa: ARG002
        with self.lock:
            self.state.evaluated(plan, metrics)
        self.changed()

    def note(self, text: str) -> None:
        with self.lock:
            self.state.notes.append(text)
        self.changed()

    def changed(self) -> None:
        """The state is another one; override to show it."""


class LiveObserver(RunObserver):
    """A screen that is redrawn in place; its last state stays."""

    def __init__(
        self,
        console: Console,
        plan: Plan,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(plan, folder, clock)
        self.screen = Screen(console, self.lines, self.note)

    def open(self, waiting: str) -> None:
        """Show the screen; until the run reports anything, it says what is waited for."""
        self.waiting(waiting)
        self.screen.open()

    def lines(self, width: int, height: int) -> list[Text]:
        """Return what the screen shows."""
        with self.lock:
            return frame(self.state, width, height, self.clock())

    def changed(self) -> None:
        self.screen.changed()

    def close(self) -> None:
        self.screen.close()


class PlainObserver(RunObserver):
    """One line a step with the time of day, for logs and pipes; and one a minute in long steps."""

    def __init__(
        self,
        console: Console,
        plan: Plan,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        moment: Callable[[], str] = lambda: time.strftime("%H:%M:%S"),
    ) -> None:
        super().__init__(plan, folder, clock)
        self._console, self._moment, self._said = console, moment, clock()

    def started(self, plan: Plan, folder: Path) -> None:
        self.note(f"running {plan.recipe} (seed {plan.seed}) in {folder}")

    def waiting(self, what: str) -> None:
        super().waiting(what)
        if what:
            self.note(f"{what} …")

    def stage_started(self, stage: Training, done: int, values: Sequence[float]) -> None:
        super().stage_started(stage, done, values)
        if done:
            self.note(f"{stage.name}: going on after step {done} of {stage.steps}")

    def progress(self, done: int, planned: int) -> None:
        super().progress(done, planned)
        if self.clock() - self._said >= _SILENCE:
            stage = self.state.current
            where = f"{stage.plan.name} step {stage.done + 1}" if stage else "evaluation"
            self.note(f"{self.state.waiting or where}: {done:,} of {planned:,} played")

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        super().step(step, metrics)
        assert self.state.current is not None
        self.note(step_line(self.state, self.state.current))

    def evaluated(self, plan: Evaluation, step: int, metrics: Mapping[str, Any]) -> None:
        super().evaluated(plan, step, metrics)
        self.note(evaluation_line(plan, step, metrics))

    def note(self, text: str) -> None:
        self._said = self.clock()
        line = f"{self._moment()}  {plain(text)}"
        self._console.print(line, highlight=False, soft_wrap=True, markup=False)


def step_line(state: RunState, stage: StageState) -> str:
    """Return the last step of a stage on one line."""
    metrics, (key, name) = stage.last, measured(stage)
    value, held_out = metrics.get(key), metrics.get(f"heldout/{name}")
    envs = envs_of(stage) if len(envs_of(stage)) > 1 else []
    parts = [
        f"{stage.plan.name} {stage.done:>{len(str(stage.steps))}}/{stage.steps}",
        f"{name} {'none' if value is None else f'{value:.3f}':>6}",
        "" if held_out is None else f"held out {held_out:.3f}",
        *(f"{env} {metrics[f'reward/{env}']:.3f}" for env in envs if f"reward/{env}" in metrics),
        f"{throughput(metrics):7,.0f} tokens/s",
        f"{elapsed(metrics['time/total']):>7}",
        f"left {time_left(stage)}",
        money(state).replace("   ", ", "),
        staleness(metrics),
        ", ".join(service(metrics)) if metrics.get("service/backoffs") else "",
        *remarks(metrics),
    ]
    return "  ".join(part for part in parts if part)
