"""``--fix`` changes no meaning: a recipe that has a plan keeps it, and one that has none gets the
only one that it can have. What may be another thing is proposed, and left to the author."""

from __future__ import annotations

import pytest
from paths import RECIPES, ROOT

from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash

FOLDERS = (RECIPES, ROOT / "tests/check/cases", ROOT / "tests/check/sound", ROOT / "tests/imports")
FILES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.rl"))]

RECIPE = """\
model policy { base = "tiny" }
model policy_a { base = "tiny" }
env guess = gem("game:GuessTheNumber-v0-easy") |> chat()
train main {
  model     = policy
  env       = guess
  batch     = groups(4, group_size = 4)
  sampling  = sample(max_tokens = 32, stop = ["."])
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-4)
  steps     = 20
}
expect main.cost.high < $20
"""

HELDOUT = "eval heldout { model = main  env = guess  samples = 8  metrics = [pass_at(1)] }"


def check(source: Source) -> Diagnostics:
    return compile_source(source).diagnostics


def test_a_fix_of_a_recipe_that_has_a_plan_keeps_it() -> None:
    fixed = 0
    for path in FILES:
        source = Source(str(path), path.read_text(encoding="utf-8"))
        before = compile_source(source)
        if before.plan is None or all(item.fix is None for item in before.diagnostics):
            continue
        after = compile_source(fix_all(source, check).source).plan
        assert after is not None, path
        assert plan_hash(after) == plan_hash(before.plan), path
        fixed += 1
    assert fixed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("adam(1e-4)", "adamax(1e-4)"),  # other optimisers, losses and advantages
        ("adam(1e-4)", "adan(1e-4)"),
        ("importance_sampling()", "cppo()"),
        ("grpo()", "crpo()"),
        ("model     = policy\n", "model = policy_b\n"),  # another one of a family
        ("steps     = 20", "steps = 20 // rate"),  # a quotient, or a comment
        ("steps     = 20", "steps = 20 // (3 + 2)"),
        ("steps     = 20", "steps = 20 % 3"),  # a rest, or a share
        ("steps     = 20", "steps = 2 * (3 + 7"),  # 20, or 13
        ("steps     = 20", "steps = 2 * 3 + 7)"),
        ('["."]', '["\\u00e9"]'),  # escapes of other languages
        ('["."]', '["\\\'"]'),
        ("expect main", "stop_if main"),  # the contrary of what is expected
        ("high < $20", "high <> $20"),  # not equal, or below
        ("main.cost.high < $20", f"heldout.pass_at_1 > 2\n{HELDOUT}"),  # 2 %, or twice
        ("steps     = 20", "steps = 20\n  stps = 30"),  # one of two that are there
    ],
)
def test_what_may_mean_another_thing_is_only_proposed(before: str, after: str) -> None:
    source = Source("test.rl", RECIPE.replace(before, after, 1))
    assert source.text != RECIPE
    fixed = fix_all(source, check)
    assert fixed.source.text == source.text
    assert fixed.remaining.has_errors


def test_a_parenthesis_is_not_closed_behind_a_block() -> None:
    source = Source("test.rl", RECIPE.partition("expect")[0].replace("main {", "main( {"))
    assert fix_all(source, check).source.text == source.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("adam(1e-4)", "adma(1e-4)"),
        ("importance_sampling()", "importnce_sampling()"),
        ("grpo()", "grppo()"),
        ("model     = policy\n", "model = polcy\n"),
        ("steps     = 20", "step      = 20"),  # nearer than that of `deadlines()`
        ("steps     = 20", "steps     = 20  // of three hundred"),
        ("steps     = 20", "// as in the paper\n  steps = 20"),
        ("expect main", "expct main"),
        ("expect main", "assert main"),
        ("high < $20", "high < 20"),
        ("adam(1e-4)", "adam(1e-4"),
        ("grpo()", "grpo())"),
    ],
)
def test_what_has_one_meaning_is_written(before: str, after: str) -> None:
    meant = compile_source(Source("test.rl", RECIPE)).plan
    source = Source("test.rl", RECIPE.replace(before, after, 1))
    plan = compile_source(fix_all(source, check).source).plan
    assert meant is not None
    assert plan is not None
    assert plan_hash(plan) == plan_hash(meant)
