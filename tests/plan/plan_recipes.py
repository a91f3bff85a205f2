"""Recipes for the tests of plans."""

from __future__ import annotations

from pathlib import Path

from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.compile import compile_source
from rlc.plan.tree import Plan

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "recipes").glob("*.rl"))

EVERYTHING = """\
param rate: float = 4e-5
param share = 3

model policy { base = "Qwen/Qwen3.5-4B" lora_rank = 64 train_unembed = false }

env sudoku = gem("game:Sudoku-v0-easy", clues = 8) |> concat() |> template("qwen3_game")
env room   = gem("game:Sokoban-v0-easy", dim_room = [7, 7]) |> template("no")
env guess  = gem("game:GuessTheNumber-v0-random") |> concat() |> template("no")
env sums   = gem("rg:chain_sum", size = 50) |> template("no")
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
"""


def planned(text: str, *overrides: str, seed: int | None = None) -> Plan:
    """The plan of a recipe without errors."""
    compiled = compile_source(Source("test.rl", text), overrides, seed)
    assert compiled.plan is not None, render_human(compiled.diagnostics, color=False)
    return compiled.plan


def recipe(name: str) -> str:
    return (ROOT / "recipes" / f"{name}.rl").read_text(encoding="utf-8")
