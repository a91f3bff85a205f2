"""Sweeps for tests: records, and a small job on the embedded engine or its double."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlc.compile.recipe import CompileResult, load
from rlc.compile.sweeps import Sweep
from rlc.lang.render import render_human
from rlc.plan.parts import BudgetPlan
from rlc.plan.records import Plan
from rlc.plan.sweeps import MeasurePlan, SearchPlan, SweepPlan
from rlc.sweeps.journal import SweepSummary
from rlc.sweeps.run import SweepRun
from rlc.sweeps.start import compiled_again, open_sweep, reopen_sweep

METRIC = MeasurePlan("held.pass_at_1", "held", "eval/held/pass@1", True, True)
PLAN = SweepPlan("s", "main", (), 2, METRIC, SearchPlan("grid", None), BudgetPlan(None, None, None))

# A warm start, a stage that is tried, an evaluation: a few seconds a trial.
JOB = """
param rate: float = 1e-3
param shown: int = 8
model policy { base = "tiny"  lora_rank = 4 }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
sft warmup {
  model = policy  data = demonstrations(guess, n = shown)  batch = 4  steps = 2
  optimizer = adam(1e-3)
}
train main {
  model = warmup  env = guess  batch = groups(2, group_size = 4)  advantage = grpo()
  sampling = sample(max_tokens = 8)  loss = importance_sampling()  optimizer = adam(rate)
  steps = 3
}
eval held {
  model = main  env = guess  tasks = 2  every = 1  metrics = [mean_reward(), pass_at(1)]
}
"""


def write(folder: Path, sweep: str, job: str = JOB) -> Path:
    path = folder / "small.rl"
    path.write_text(job + sweep, encoding="utf-8")
    return path


def loaded(path: Path, *overrides: str, seed: int | None = None) -> CompileResult:
    compiled = load(path, overrides, seed)
    assert compiled.plan is not None, render_human(compiled.diagnostics, color=False)
    return compiled


def sweep_in(path: Path) -> tuple[Plan, Sweep]:
    """The plan of a recipe and its sweep."""
    compiled = loaded(path)
    assert compiled.plan is not None
    (sweep,) = compiled.sweeps
    return compiled.plan, sweep


MADE_FROM: Mapping[str, Any] = {
    "overrides": [],
    "seed": None,
    "rehearse": False,
    "service": None,
    "folder": "",
}


def started(path: Path, folder: Path, **more: Any) -> SweepRun:
    base, sweep = sweep_in(path)
    return open_sweep(base, sweep, MADE_FROM, folder, **more)


def go_on(folder: Path) -> SweepRun:
    compiled, name = compiled_again(folder)
    assert compiled.plan is not None
    (sweep,) = (sweep for sweep in compiled.sweeps if sweep.plan.name == name)
    return reopen_sweep(folder, compiled.plan, sweep)


def ran(made: SweepRun) -> SweepSummary:
    try:
        return made.run()
    finally:
        made.folder.close()
