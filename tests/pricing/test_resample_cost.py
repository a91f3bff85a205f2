"""What replaced groups may cost: sampled at most so often, and never trained on."""

from __future__ import annotations

from plan_recipes import planned

from rlc.plan.stages import Training
from rlc.pricing.assumptions import assumptions
from rlc.pricing.shapes import LEVELS
from rlc.pricing.tokens import step_tokens

RECIPE = """\
model policy {{ base = "Qwen/Qwen3-8B" }}
env short = gem("rg:chain_sum") |> template(no) |> rollouts(max_tokens = 10)
env long = gem("rg:chain_sum") |> template(no) |> rollouts(max_tokens = 1000)
train main {{
  model = policy  env = 3 * short + long  batch = groups(8, group_size = 4{})
  sampling = sample(100)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(1e-5)  steps = 1
}}
"""


def stage(resample: str) -> Training:
    (found,) = planned(RECIPE.format(resample)).stages
    assert isinstance(found, Training)
    return found


def test_all_replacements_may_come_from_the_dearest_environment() -> None:
    plain, replaced = stage(""), stage(", resample = 6")
    sampled = {
        level: step_tokens(replaced, level).sample - step_tokens(plain, level).sample
        for level in LEVELS
    }
    assert sampled == {"low": 0, "expected": 3 * 4 * 500, "high": 2 * 6 * 4 * 1000}
    for level in LEVELS:
        assert step_tokens(replaced, level).train == step_tokens(plain, level).train


def test_the_estimate_says_what_it_takes_for_granted() -> None:
    said = "low, expected, high: 0%, 50%, 100% of the 6 replacements played"
    assert said in assumptions(stage(", resample = 6"))
    assert not any("replacements" in text for text in assumptions(stage("")))
