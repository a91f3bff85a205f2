"""What a run shows while it goes: on a terminal, in a log, or only where something is amiss."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import made_up_runs
import pytest
from live_states import FOLDER, GUESSES, game, learnt_from_data, step_metrics
from made_up_runs import write_lines
from paths import RECIPES
from processes import command, fork, on_terminal
from rich.console import Console
from terminal import Terminal

from rlc.cli.live.observers import LiveObserver, PlainObserver, QuietObserver, step_line
from rlc.cli.live.state import evaluation_line
from rlc.cli.output import redraws
from rlc.plan.stages import Evaluation, Training
from rlc.runtime.journal.metrics import read_metrics

PLAN = made_up_runs.plan(9)
(MAIN,) = (stage for stage in PLAN.stages if isinstance(stage, Training))
(HELDOUT,) = (stage for stage in PLAN.stages if isinstance(stage, Evaluation))
RESULTS = {"stage": "heldout", "step": 5, "eval/heldout/pass@1": 0.75, "eval/heldout/failed": 0.0}


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def plain(clock: Clock, folder: Path = FOLDER) -> tuple[PlainObserver, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True)
    return PlainObserver(console, PLAN, folder, clock, lambda: "12:00:00"), out


def test_quiet_still_warns(capsys: pytest.CaptureFixture[str]) -> None:
    observer = QuietObserver()
    observer.note("all is well")
    observer.warning("the run goes on with other files than it began with")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "warning: the run goes on with other files than it began with\n"


def test_a_log_has_a_line_a_step_with_its_time_and_no_escape_codes() -> None:
    observer, out = plain(Clock())
    observer.started(PLAN, FOLDER)
    observer.waiting("opening deepseek-ai/DeepSeek-V3.1")
    observer.stage_started(MAIN, 0, [])
    observer.waiting("")
    failed = {"rollouts/failed": 3.0, "failures/EnvError": 2.0, "failures/TimeoutError": 1.0}
    observer.step(1, step_metrics("main", 1, 9, **failed))
    observer.evaluated(HELDOUT, 5, RESULTS)
    observer.note("a note\x1b[2J of\nothers")
    assert out.getvalue().splitlines() == [
        "12:00:00  running recipe.rl (seed 1) in runs/recipe-20261121-093000",
        "12:00:00  opening deepseek-ai/DeepSeek-V3.1 …",
        "12:00:00  main 1/9  reward  0.424  guess 0.514  spell 0.300    1,173 tokens/s   12.8 s  "
        "left 1 min 42 s  $0.11 of $20.00, about $0.88 to come  1.2 steps stale  "
        "96 replies at once, backed off 2 times  3 rollouts failed (2 EnvError, 1 TimeoutError)",
        "12:00:00  heldout after step 5: pass@1 0.750",
        "12:00:00  a note\\x1b[2J of others",
    ]


def test_a_line_shows_what_the_stage_is_about() -> None:
    """Of play against itself who wins, and the newest result against others; of preferences more
    than how many are right."""
    line = step_line(state := game(), state.stages["main"])
    assert line.startswith("main  6/10  tug first win  0.550  reward 0.500  wins win_rate 0.800  ")
    line = step_line(state := learnt_from_data("preferences.rl", "align"), state.stages["align"])
    assert re.match(r"align +\d+/16  accuracy  0\.\d{3}  .*margin 0\.\d{3}  loss 0\.\d{3}  ", line)


def test_a_log_says_soon_how_far_a_long_step_is_and_then_once_a_minute() -> None:
    clock = Clock()
    observer, out = plain(clock)
    observer.stage_started(MAIN, 0, [])
    for second in range(0, 150, 10):
        clock.now = second
        observer.progress(second // 10 + 1, 16)
    assert [line.partition("  ")[2] for line in out.getvalue().splitlines()] == [
        f"main step 1: {done} of 16 played" for done in (2, 3, 5, 9, 15)
    ]


def test_a_step_without_a_usable_rollout_says_so() -> None:
    observer, out = plain(Clock())
    observer.stage_started(MAIN, 0, [])
    known = step_metrics("main", 1, 9)
    left = {key: value for key, value in known.items() if not key.startswith("reward")}
    observer.step(1, left | {"optim/skipped": 1.0})
    assert "main 1/9  reward   none" in out.getvalue()
    assert "no rollout could be used: no optimiser step" in out.getvalue()


def test_a_resumed_run_has_the_curves_of_before(tmp_path: Path) -> None:
    records = [step_metrics("main", step, 9) for step in range(1, 6)] + [RESULTS]
    write_lines(tmp_path / "metrics.jsonl", records)
    observer, out = plain(Clock(), tmp_path)
    observer.stage_started(MAIN, 4, [])  # the fifth was not journalled
    assert "main: going on after step 4 of 9" in out.getvalue()
    stage = observer.state.current
    assert stage is not None
    assert stage.records == read_metrics(tmp_path)[:4]
    observer.step(5, step_metrics("main", 5, 9))
    assert len(stage.values("reward/spell")) == stage.done == 5


def test_failures_of_an_evaluation_are_said() -> None:
    text = evaluation_line(HELDOUT, 0, RESULTS | {"eval/heldout/failed": 3.0})
    assert text == "heldout after step 0: pass@1 0.750   3 failed"


class _Stream(io.StringIO):
    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("terminal", "variables", "expected"),
    [
        (True, {}, True),
        (True, {"NO_COLOR": "1"}, True),
        (True, {"TERM": "dumb"}, False),
        (True, {"CI": "true"}, False),
        (False, {"FORCE_COLOR": "1"}, False),
    ],
)
def test_only_a_terminal_of_a_person_is_redrawn(
    terminal: bool, variables: dict[str, str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("CI", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert redraws(_Stream(terminal)) is expected


def test_what_is_printed_meanwhile_is_kept_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=(out := io.StringIO()), width=80, height=24, force_terminal=True)
    observer = LiveObserver(console, PLAN, FOLDER, Clock())
    observer.open("opening the service")
    print("a tracker says where its page is")
    sys.stderr.write("a library warns\n")
    observer.stage_started(MAIN, 0, [])
    observer.played([GUESSES])
    observer.close()
    observer.close()  # a second time does nothing
    said = capsys.readouterr()
    assert said.out == "a tracker says where its page is\n"
    assert said.err == "a library warns\n"
    terminal = Terminal(80)
    terminal.feed(out.getvalue())
    assert not terminal.other
    left = "\n".join(terminal.lines)
    assert "newest episode: guess" in left
    assert "a library warns" in left


CHILD = """
import sys
import made_up_runs
from live_states import FOLDER, GUESSES, step_metrics
from rich.console import Console
from rlc.cli.live.observers import LiveObserver
plan = made_up_runs.plan(9)
observer = LiveObserver(Console(), plan, FOLDER)
observer.open("opening the service")
sys.stdin.readline()
observer.stage_started(plan.stages[0], 0, [])
for step in range(1, 8):
    observer.step(step, step_metrics("main", step, 9))
observer.played([GUESSES])
observer.changed()
sys.stdin.readline()
observer.note("stopping after this step")
sys.stdin.readline()
observer.close()
print("the end")
"""


class Pseudo:
    """A process on a real pseudo terminal, and what it has written so far."""

    def __init__(self, log: Path, body: Callable[..., object], *args: Any) -> None:
        self.master, slave = pty.openpty()
        self.resize(24, 80)
        with Connection(slave) as terminal:  # closed here once the process has it
            self.process = fork(log, on_terminal, terminal, body, *args)
        self.text = ""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def type(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def until(self, wanted: str) -> str:
        """Read until a text is written after what was read before, and return what was read."""
        read = ""
        while not re.search(wanted, read):
            read += self._read()
        self.text += read
        return read

    def end(self) -> str:
        """Read the rest, and return all that was written."""
        try:
            while True:
                self.text += self._read()
        except EOFError:
            self.process.join()
            return self.text

    def _read(self) -> str:
        try:
            data = os.read(self.master, 65_536)
        except OSError:  # how Linux says that the other end is closed
            data = b""
        if not data:
            raise EOFError(self.text)
        return data.decode(errors="replace")


@pytest.fixture
def pseudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("CI", "NO_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    running = list[Pseudo]()

    def start(body: Callable[..., object], *args: Any) -> Pseudo:
        running.append(Pseudo(tmp_path / "log", body, *args))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.join()
        os.close(one.master)


@pytest.mark.plain  # as all that is forked
@pytest.mark.slow
def test_a_real_terminal_that_is_resized_and_typed_on_stays_clean(pseudo: Any) -> None:
    run = pseudo(exec, CHILD)
    run.until("opening the service")
    run.type(b"\r")
    run.until("step 7 of 9")
    run.until("newest episode")
    run.resize(40, 120)
    run.until("kl reference")  # has a curve of its own where there is room
    run.type(b"hello\r")  # is echoed onto the screen
    run.until("stopping after this step")
    run.resize(24, 80)
    run.until("training")
    run.type(b"\r")
    written = run.end()
    assert run.process.exitcode == 0
    before, after = written.split("\x1b[?1049l")
    assert before.startswith("\x1b[?1049h")
    terminal = Terminal(80)
    terminal.feed(after)
    left = [line.rstrip() for line in terminal.lines]
    assert left[0].startswith("recipe.rl · seed 1")
    assert left[-2:] == ["the end", ""]
    assert sum("newest episode" in line for line in left) == 1
    assert sum("step 7 of 9" in line for line in left) == 1
    assert "hello" not in after
    assert all(len(line) < 80 for line in left)
    assert written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")  # there is a cursor again


@pytest.mark.plain
@pytest.mark.slow
def test_ctrl_c_leaves_the_last_state_and_how_to_go_on(pseudo: Any, tmp_path: Path) -> None:
    small = ["--set", "main.batch=groups(2, group_size = 2)", "--set", "main.steps=9_000"]
    folder = ["--run-dir", str(tmp_path / "run")]
    run = pseudo(command, ["run", str(RECIPES / "quickstart.rl"), *small, *folder])
    run.until("step [1-9][0-9]* of 9,000")
    run.type(b"\x03")
    written = run.end()
    assert run.process.exitcode == 130
    terminal = Terminal(80)
    terminal.feed(written)
    left = "\n".join(terminal.lines)
    assert not terminal.other
    assert "quickstart.rl · seed 1" in left
    assert "newest episode: guess" in left
    assert f"rlc run --resume {tmp_path / 'run'}" in left.replace("\n", "")  # it is wrapped
    assert "^C" not in left
