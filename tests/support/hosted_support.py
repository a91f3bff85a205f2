"""A small job on the Tinker service, and the same job on the embedded engine."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.plan.stages import Training

BASE = "Qwen/Qwen3-8B"
RECIPE = """
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 4  renderer = qwen3_instruct }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model     = policy
  env       = guess
  batch     = groups(2, group_size = 4)
  sampling  = sample(max_tokens = 8)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(3e-3)
  steps     = 3
  save      = every(1, keep = 2)
}
"""


def hosted_plan(seed: int = 1, **overrides: str) -> Plan:
    """The plan of the small job; ``main__steps="2"`` overrides the field ``main.steps``."""
    fields = {name.replace("__", "."): value for name, value in overrides.items()}
    compiled = compile_source(Source("hosted.rl", RECIPE), fields, seed)
    assert compiled.plan is not None, compiled.diagnostics
    return compiled.plan


def with_model(plan: Plan, **facts: Any) -> Plan:
    """The plan with other facts of its model, as nobody could write them in a recipe."""
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    return evolve(plan, stages=(evolve(stage, model=evolve(stage.model, **facts)),))
