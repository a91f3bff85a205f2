"""Observers of a run: the live view, a line a step, or nothing but warnings. The live view takes
the terminal's other screen; what the process prints meanwhile is printed when it ends."""

from __future__ import annotations

import io
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from rlc.cli.live.frame import frame
from rlc.cli.live.lines import plain
from rlc.cli.live.state import (
    RunState,
    StageState,
    evaluation_line,
    remarks,
    service,
    staleness,
    throughput,
)
from rlc.plan import Evaluation, Plan, Training, elapsed
from rlc.runtime import (
    Observer,
    Record,
    Rollout,
    TrainedSample,
    evaluation_results,
    read_metrics,
)

_SILENCE = (5.0, 60.0)  # seconds after which a log says how far a step is: at first, at last


_INTERVAL = 0.25  # seconds between two looks at what has changed, at the least
_SHARE = 0.02  # of a core, that drawing takes at the most
_HOME, _REST_OF_LINE, _REST = "\x1b[H", "\x1b[K", "\x1b[J"


class QuietObserver(Observer):
    """Prints warnings, and nothing else."""

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
        """Show the state, which has changed."""


class LiveObserver(RunObserver):
    """Redraws a screen at most four times a second and in two percent of a core."""

    def __init__(
        self,
        console: Console,
        plan: Plan,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(plan, folder, clock)
        self._console = console
        self._thread = threading.Thread(target=self._redraw, name="live view", daemon=True)
        self._changed, self._closed, self._streams = True, threading.Event(), list[_Kept]()

    def open(self, waiting: str) -> None:
        """Show the other screen, and until the run reports anything, what is waited for."""
        self.waiting(waiting)
        self._console.file = self._console.file  # this stream, whatever takes its place
        self._streams = [_Kept(stream, self.note) for stream in (sys.stdout, sys.stderr)]
        sys.stdout, sys.stderr = self._streams
        self._console.set_alt_screen(True)
        self._console.show_cursor(False)
        self._draw()
        self._thread.start()

    def changed(self) -> None:
        """Draw again soon; without a change it is drawn once a second, for the clock."""
        self._changed = True

    def close(self) -> None:
        """Go back to the first screen, and leave the last state there."""
        if not self._streams:
            return
        self._closed.set()
        self._thread.join()
        kept, self._streams = self._streams, []
        sys.stdout, sys.stderr = (stream.stream for stream in kept)
        self._console.show_cursor(True)
        self._console.set_alt_screen(False)
        self._console.file.write(self._rendered() + "\n")
        self._console.file.flush()
        for stream in kept:
            stream.stream.write(stream.text.getvalue())
            stream.stream.flush()

    def _draw(self) -> None:
        lines = self._rendered().replace("\n", f"{_REST_OF_LINE}\n")
        self._console.file.write(f"{_HOME}{lines}{_REST_OF_LINE}{_REST}")
        self._console.file.flush()

    def _rendered(self) -> str:
        """Return coloured lines; the last column stays free, as some terminals wrap after it."""
        width, height = self._console.size
        with self.lock:
            lines = frame(self.state, width - 1, height, self.clock())
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, no_wrap=True, crop=True, overflow="crop", highlight=False)
        return captured.get().removesuffix("\n")

    def _redraw(self) -> None:
        waited, pause = 0.0, _INTERVAL
        with suppress(OSError):  # the terminal is gone, the run is not
            while not self._closed.wait(pause):
                waited += pause
                if self._changed or waited >= 1:
                    self._changed, waited = False, 0.0
                    began = time.thread_time()
                    self._draw()
                    pause = max(_INTERVAL, (time.thread_time() - began) / _SHARE)


class _Kept(io.TextIOBase):
    """Stands for a stream, keeps what is written, and calls ``on_line`` with each line."""

    def __init__(self, stream: TextIO, on_line: Callable[[str], None]) -> None:
        self.stream, self.text, self._on_line = stream, io.StringIO(), on_line

    def write(self, text: str) -> int:
        if line := text.strip().rpartition("\n")[2]:
            self._on_line(line)
        return self.text.write(text)

    def isatty(self) -> bool:
        return False  # what is written must stay readable: no progress bars


class PlainObserver(RunObserver):
    """Prints a line a step with the time of day, and one a minute in long steps."""

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
        self._silence = _SILENCE[0]  # doubles with each line

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
        if self.clock() - self._said >= self._silence:
            self._silence = min(2 * self._silence, _SILENCE[1])
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
    metrics, (main, *others) = stage.last, stage.watched
    value, held_out = metrics.get(main.key), metrics.get(main.held_out)
    rewards = (part for one in (main, *others) for part in one.parts if one.parts[1:])
    tried = state.evaluations if main.rises is None else []  # against others it shows who is better
    results = [(one.plan.name, evaluation_results(one.last, one.plan.name)) for one in tried]
    parts = [
        f"{stage.plan.name} {stage.done:>{len(str(stage.steps))}}/{stage.steps}",
        f"{main.label} {'none' if value is None else f'{value:.3f}':>6}",
        "" if held_out is None else f"held out {held_out:.3f}",
        *(f"{one.of} {metrics[one.key]:.3f}" for one in rewards if one.key in metrics),
        *(f"{one.label} {metrics[one.key]:.3f}" for one in others if one.key in metrics),
        *(f"{of} {name} {found[name]:.3f}" for of, found in results for name in [*found][:1]),
        f"{throughput(metrics):7,.0f} tokens/s",
        f"{elapsed(metrics['time/total']):>7}",
        f"left {stage.time_left}",
        state.money(stage)[0].replace("   ", ", "),
        staleness(metrics),
        ", ".join(service(metrics)) if metrics.get("service/backoffs") else "",
        *remarks(metrics),
    ]
    return "  ".join(part for part in parts if part)
