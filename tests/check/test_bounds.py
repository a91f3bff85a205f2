"""Limits include the value that they name."""

from __future__ import annotations

import pytest

from rlc.catalog.facts import find_model
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source

RECIPE = """
model policy {{ base = "{base}"  lora_rank = {rank} }}
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {{
  model = policy  env = guess  batch = groups(4)  sampling = sample(max_tokens = 16)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(1e-4)  steps = 2
}}
"""
BASE = "thinkingmachines/Inkling-Small"


def codes(rank: int) -> set[str]:
    text = RECIPE.format(base=BASE, rank=rank)
    return {item.code for item in compile_source(Source("r.rl", text)).diagnostics}


@pytest.mark.parametrize(("factor", "refused"), [(1, False), (2, True)])
def test_the_largest_rank_of_a_model_is_allowed(factor: int, refused: bool) -> None:
    model = find_model(BASE)
    assert model
    assert model.max_rank
    assert ("RL0401" in codes(factor * model.max_rank)) == refused
