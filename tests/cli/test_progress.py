"""What a run shows while it goes: each kind of stage by its own measure."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from rich.console import Console
from terminal import Terminal

from rlc.cli.progress import LiveObserver, PlainObserver, QuietObserver, evaluation_line
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.limits import BudgetPlan
from rlc.plan.records import EvalPlan, Plan, SftPlan, TrainPlan

RECIPE = """
model policy { base = "tiny" lora_rank = 4 }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
sft warmup { model = policy  data = demonstrations(guess, n = 8)  batch = 4  steps = 3
  optimizer = adam(1e-4) }
train main { model = warmup  env = guess  batch = groups(4)  sampling = sample(max_tokens = 16)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(1e-4)  steps = 9 }
eval heldout { model = main  env = guess }
"""


def plan() -> Plan:
    compiled = compile_source(Source("r.rl", RECIPE)).plan
    assert compiled is not None
    return compiled


def stages() -> tuple[SftPlan, TrainPlan, EvalPlan]:
    sft, train, evaluation = plan().stages
    assert isinstance(sft, SftPlan)
    assert isinstance(train, TrainPlan)
    assert isinstance(evaluation, EvalPlan)
    return sft, train, evaluation


def metrics(stage: str, step: int, **values: Any) -> dict[str, Any]:
    known = {"time/total": 2.0, "tokens/sampled": 60, "tokens/trained": 40, "optim/skipped": 0.0}
    return {"stage": stage, "step": step, **known, **values}


RESULTS = {"eval/heldout/pass@1": 0.75, "eval/heldout/failed": 0.0}


def test_quiet_still_warns(capsys: pytest.CaptureFixture[str]) -> None:
    observer = QuietObserver()
    observer.note("all is well")
    observer.warning("the run goes on with other files than it began with")
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == "warning: the run goes on with other files than it began with\n"


def test_a_line_a_step_says_loss_or_reward() -> None:
    out, (sft, train, evaluation) = io.StringIO(), stages()
    observer = PlainObserver(Console(file=out, width=200))
    observer.stage_started(sft, 0, [])
    observer.step(1, metrics("warmup", 1, **{"loss/mean": 0.5}))
    observer.stage_started(train, 4, [0.1, 0.2, 0.3, 0.4])
    failed = {"rollouts/failed": 2.0, "rollouts/context_overflow": 0.0}
    observer.step(5, metrics("main", 5, **{"reward/mean": 0.25}, **failed))
    observer.evaluated(evaluation, 5, metrics("heldout", 5, **RESULTS))
    lines = out.getvalue().splitlines()
    assert "warmup 1/3  loss  0.500       50 tokens/s" in lines[0]
    assert lines[1] == "main: going on after step 4 of 9"
    assert "main 5/9  reward  0.250" in lines[2]
    assert "left 8 s  2 rollouts failed" in lines[2]
    assert lines[3] == "heldout after step 5: pass@1 0.750"


def test_the_live_display_shows_every_kind_of_stage() -> None:
    out, (sft, train, evaluation) = io.StringIO(), stages()
    console = Console(file=out, width=120, force_terminal=True)
    observer = LiveObserver(console)
    observer.stage_started(sft, 0, [])
    observer.step(1, metrics("warmup", 1, **{"loss/mean": 0.5}))
    console.print(observer._render())
    observer.stage_started(train, 0, [])
    observer.step(1, metrics("main", 1, **{"reward/mean": 0.25, "reward/guess": 0.25}))
    observer.evaluated(evaluation, 1, metrics("heldout", 1, **RESULTS))
    console.print(observer._render())
    shown = out.getvalue()
    for text in ("warmup step", "loss", "main step", "reward", "pass@1 0.750"):
        assert text in shown


def test_failures_of_an_evaluation_are_said() -> None:
    _, _, evaluation = stages()
    text = evaluation_line(
        evaluation, 0, metrics("heldout", 0, **RESULTS | {"eval/heldout/failed": 3.0})
    )
    assert text == "heldout after step 0: pass@1 0.750   3 failed"


BUSY = {
    "reward/mean": 0.5,
    "reward/guess": 0.5,
    "rollouts/failed": 3.0,
    "failures/EnvError": 2.0,
    "failures/TimeoutError": 1.0,
    "rollouts/staleness": 1.25,
    "service/concurrency": 96.0,
    "service/backoffs": 2.0,
    "spend/usd": 1.5,
    "entropy/mean": 0.533,
    "kl/sample_train": 0.00123,
    "optim/grad_norm": 52.35,
    "policy/clip_fraction": 0.031,
    "policy/ess": 0.98,
    "turns/cut_off": 0.12,
}


def frame(width: int, step: dict[str, Any], steps: int = 40) -> list[str]:
    """What the live display shows after some steps, without its colours."""
    _, train, _ = stages()
    train = evolve(train, steps=steps, budget=BudgetPlan(usd=4.0, tokens=None, seconds=None))
    console = Console(file=io.StringIO(), width=width, height=40, force_terminal=True, record=True)
    observer = LiveObserver(console)
    observer.stage_started(train, 0, [])
    for number in range(1, 31):
        observer.step(number, metrics("main", number, **step))
    observer.progress(3, 4)
    console.print(observer._render())
    return console.export_text().splitlines()


@pytest.mark.parametrize("width", [80, 120])
def test_the_live_display_fits_the_terminal(width: int) -> None:
    lines = frame(width, BUSY)
    assert all(len(line) <= width for line in lines)
    shown = "\n".join(lines)
    expected = (
        "30 of 40   playing group 3 of 4",
        "0.500  ▁▁▁▁",
        "from 0.500",
        "50 tokens/s",
        "left 20 s",
        "$1.50 of $4.00",
        "96 replies at once   backed off 2 times",
        "1.2 steps on average",
        "60 EnvError   30 TimeoutError",
        "3 rollouts failed (2 EnvError, 1 TimeoutError)",
        "entropy 0.53   kl 0.0012   clipped 3%   ess 98%",
        "gradient norm 52.4   truncated replies 12%",
    )
    for text in expected:
        assert text in shown
    assert sum("from 0.500" in line for line in lines) == 1  # the curve takes one line


def test_the_live_display_says_nothing_of_what_is_not_there() -> None:
    shown = "\n".join(frame(80, {"reward/mean": 0.5, "reward/guess": 0.5}))
    for label in ("policy", "batch", "service", "staleness", "failed", "note"):
        assert label not in shown


def test_a_line_a_step_says_what_the_display_would() -> None:
    out, (_, train, _) = io.StringIO(), stages()
    observer = PlainObserver(Console(file=out, width=200))
    observer.stage_started(train, 0, [])
    observer.step(1, metrics("main", 1, **BUSY))
    (line,) = out.getvalue().splitlines()
    for text in (
        "$1.50",
        "stale by 1.2 steps",
        "backed off 2 times",
        "(2 EnvError, 1 TimeoutError)",
    ):
        assert text in line


def test_a_step_without_a_usable_rollout_says_so() -> None:
    out, (_, train, _) = io.StringIO(), stages()
    observer = PlainObserver(Console(file=out, width=200))
    observer.stage_started(train, 0, [])
    observer.step(1, metrics("main", 1, **{"rollouts/failed": 16.0, "failures/EnvError": 16.0}))
    assert "main 1/9  reward   none" in out.getvalue()
    shown = "\n".join(frame(80, {"rollouts/failed": 16.0, "failures/EnvError": 16.0}))
    assert "480 EnvError" in shown


@pytest.mark.parametrize("width", [80, 120])
def test_ctrl_c_leaves_a_clean_display(width: int) -> None:
    """The terminal echoes `^C` where the cursor is: behind the display."""
    out = io.StringIO()
    observer = LiveObserver(Console(file=out, force_terminal=True, width=width, height=40))
    observer._live.auto_refresh = False
    observer.started(plan(), Path("runs/r-20261122-093000"))
    observer.stage_started(stages()[1], 0, [])
    observer.step(1, metrics("main", 1, **{"reward/mean": 0.25}))
    for _ in range(2):
        observer._live.refresh()
        out.write("^C")
        observer.note("stopping after this step, with a checkpoint; Ctrl-C again: now")
    observer._live.refresh()
    observer.close()
    terminal = Terminal(width)
    terminal.feed(out.getvalue())
    screen = [line for line in terminal.lines if line.strip()]
    assert (screen[0][0], screen[-1][0]) == ("╭", "╰")
    assert sum(line.startswith(("╭", "╰")) for line in screen) == 2
