"""Recipes for the tests of plans."""

from __future__ import annotations

import re
from typing import TypeVar

from paths import RECIPES

from rlc.compile.recipe import compile_source
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.records import Plan
from rlc.plan.stages import StagePlan, Training


def without_tests(text: str) -> str:
    """The text of a recipe without its tests."""
    return re.sub(r"^test \w+ \{\n.*?^\}\n", "", text, flags=re.MULTILINE | re.DOTALL)


RECIPE_FILES = sorted(RECIPES.glob("*.rl"))


def recipe(name: str) -> str:
    """The text of a recipe of the project without its tests, which are of its values as they stand,
    and with the paths of its files as seen from the folder that tests run in."""
    text = without_tests((RECIPES / f"{name}.rl").read_text(encoding="utf-8"))
    return text.replace('"data/', '"recipes/data/').replace('"lib/', '"recipes/lib/')


RECIPE_TEXTS = {path.stem: recipe(path.stem) for path in RECIPE_FILES}

EVERYTHING = """\
param rate: float = 4e-5
param share = 3

model policy { base = "Qwen/Qwen3.5-4B" lora_rank = 64 train_unembed = false }

env sudoku = gem("game:Sudoku-v0-easy", clues = 8) |> concat() |> template(qwen3_game)
env room   = gem("game:Sokoban-v0-easy", dim_room = [7, 7]) |> template(no)
env guess  = gem("game:GuessTheNumber-v0-random") |> concat() |> template(no)
env sums   = gem("rg:chain_sum", size = 50) |> template(no)
env games  = share * sudoku + room

advantage mine = returns(gamma = 0.95, constant = drop)
  |> baseline(leave_one_out, over = group, singleton = error)
  |> scale(std, over = batch, eps = 1e-6)
  |> clip(-5, 5)

train first {
  model     = policy
  env       = 2 * games + guess + sums
  batch     = groups(4)
  sampling  = sample(max_tokens = 64)
  advantage = mine
  loss      = ppo(clip_high = 1.28)
  optimizer = adam(rate / 2, weight_decay = 0.01)
  steps     = 10
  save      = every(5, ttl = 12h)
  on_error  = retry(3) then stop
  budget    = $1.5 * 2
}

train second {
  model = policy  env = sudoku  batch = turns(32)  sampling = sample(64)
  advantage = rebn()  loss = dro()  optimizer = adam(rate)  steps = 1e1
}

env arena = problems(countdown, grader = countdown, samples = 1_000) |> solver_judge(solvers = 3)
env whodunit = openreward("GeneralReasoning/WhoDunIt", secrets = ["OPENAI_API_KEY"])
  |> rollouts(group_size = 16, temperature = 0.5, max_failures = 2)
  |> reward(sum, nonterminal = 0.0)

sft warmup {
  model     = policy
  data      = demonstrations(sums, n = 2_000, policy = model)
  optimizer = adam(1e-4, schedule = cosine(warmup = 10, floor = 0.1))
  epochs    = 2
}

train third {
  model     = warmup
  env       = arena + whodunit
  batch     = groups(4, group_size = 8, updates = 2)
  sampling  = sample(64, max_episode_tokens = 4_096)
  advantage = grpo(scope = role)
  aggregate = seq_mean_token_sum_norm(length = 64)
  kl        = reference(policy.base, coef = 0.01, discount = 0.5)
  loss      = cispo()
  optimizer = adam(rate, schedule = linear(warmup = 2))
  overlap   = asynchronous(max_staleness = 2)
  steps     = 10
  save      = every(5, keep = 2, ttl = 30d, best = true)
  on_error  = retry(2) then penalise(-1)
  budget    = limit(usd = $1, tokens = 1_000_000, time = 12h)
  track     = [wandb("rlc"), tensorboard(), openreward_rollouts("run-1")]
}

eval heldout {
  model   = third
  env     = sums
  samples = 8
  metrics = [mean_reward(), pass_at(1), pass_at(8)]
  every   = 5
  first   = true
}
"""


def planned(text: str, *overrides: str, seed: int | None = None) -> Plan:
    """The plan of a recipe without errors."""
    compiled = compile_source(Source("test.rl", text), overrides, seed)
    assert compiled.plan is not None, render_human(compiled.diagnostics, color=False)
    return compiled.plan


T = TypeVar("T", bound=StagePlan)


def stages_of(plan: Plan, kind: type[T]) -> list[T]:
    """The stages of one kind."""
    return [stage for stage in plan.stages if isinstance(stage, kind)]


def first_train(plan: Plan) -> Training:
    """The first training stage."""
    return next(stage for stage in plan.trainings if stage.rollouts is not None)
