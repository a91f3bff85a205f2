"""Expectations: what they name, what is held before a run, and what the plan keeps of them."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st
from paths import ROOT

from rlc.compile.recipe import CompileResult, compile_source
from rlc.compile.variants import rehearse
from rlc.emit.errors import EmitError
from rlc.emit.script.program import script
from rlc.explanation import explain_dict, explain_text
from rlc.explanation.diff import diff_plans, diff_text
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.expectations import COMPARES, ExpectationPlan, QuantityPlan
from rlc.plan.records import Plan
from rlc.pricing.cost import plan_cost, total_cost
from rlc.pricing.quantities import judged_before

RECIPE = """
param rate: float = 1e-5
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 16 }
env sums = gem("rg:simple_equations") |> template(qwen3_general)
train main {
  model = policy  env = sums  batch = groups(16, group_size = 8)
  sampling = sample(max_tokens = 64)  advantage = dr_grpo()  loss = importance_sampling()
  optimizer = adam(rate)  steps = 20
}
"""
EVALS = """
eval before { model = policy  env = sums  sampling = sample(max_tokens = 64) }
eval heldout { model = main  env = sums  samples = 2  metrics = [pass_at(1), mean_reward()] }
"""


def compiled(*expectations: str, text: str = RECIPE + EVALS) -> CompileResult:
    written = "".join(f"expect {one}\n" for one in expectations)
    return compile_source(Source("recipe.rl", text + written))


def plan_of(*expectations: str, text: str = RECIPE + EVALS) -> Plan:
    made = compiled(*expectations, text=text)
    assert made.plan is not None, render_human(made.diagnostics, color=False)
    return made.plan


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("main.cost.high < 2 * $10", "main.cost.high < $20"),
        ("job.cost.high <= $20 / 2 - $0.5", "job.cost.high <= $9.5"),
        ("main.reward.mean > 0.5", "main.reward.mean > 0.5"),
        ("main.reward.max > 50%", "main.reward.max > 0.5"),
        ("heldout.pass_at_1 >= 0.9", "heldout.pass_at_1 >= 90%"),
        ("main.time.total.sum < 90m", "main.time.sum < 90m"),
        ("main.steps <= 10 + 2 * main.batch.count", "main.steps <= 2 * main.batch.count + 10"),
        ("main.cost.low < main.steps * $0.10", "main.cost.low < $0.1 * main.steps"),
        ("policy.lora_rank == 16", "policy.lora_rank == 16"),
        (
            "heldout.mean_reward >= before.mean_reward + 10%",
            "heldout.mean_reward >= before.mean_reward + 0.1",
        ),
        (
            "heldout.mean_reward > -(before.mean_reward + 1)",
            "heldout.mean_reward > -1 * before.mean_reward - 1",
        ),
    ],
)
def test_an_expectation_is_kept_in_one_form(written: str, text: str) -> None:
    (one,) = plan_of(written).expectations
    assert one.text == text
    assert [again.text for again in plan_of(text).expectations] == [text]


def test_what_is_known_before_is_the_number_that_explain_shows() -> None:
    plan = plan_of("job.cost.high < $1_000", "main.prompts == 320", "main.rollouts == 2_560")
    judged = {one.quantity.path: found.found for one, found in judged_before(plan)}
    assert judged["job.cost.high"] == total_cost(plan_cost(plan), "high").total
    assert (judged["main.prompts"], judged["main.rollouts"]) == (16 * 20, 16 * 20 * 8)


def test_an_expectation_that_does_not_hold_is_an_error_where_it_stands() -> None:
    (item,) = compiled("main.optimizer.learning_rate > 1e-4").diagnostics
    assert (item.code, item.span and item.span.text) == (
        "RL0674",
        "main.optimizer.learning_rate > 1e-4",
    )
    assert [label.span.text for label in item.labels] == ["1e-5"]


@pytest.mark.parametrize("name", ["epect", "assert"])
def test_a_misspelt_word_is_told(name: str) -> None:
    (item,) = compile_source(Source("recipe.rl", f"{RECIPE}{name} main.steps < 30\n")).diagnostics
    assert (item.code, item.help) == ("RL0101", "write `expect`")


@pytest.mark.parametrize("text", ["expect main { steps = 3 }", "expect main = 3"])
def test_another_form_is_told_its_own(text: str) -> None:
    (item,) = compile_source(Source("recipe.rl", f"{RECIPE}{text}\n")).diagnostics
    assert (item.code, item.help) == ("RL0303", "write `expect main.cost.high < $20`")


@pytest.mark.parametrize("text", ["expect 3 < main.steps", "expect main.steps", "expect < 3"])
def test_what_cannot_be_read_says_how_it_is_written(text: str) -> None:
    found = compile_source(Source("recipe.rl", f"{RECIPE}{text}\n")).diagnostics
    assert found[0].code < "RL01"
    assert any("expect main.cost.high < $20" in (item.help or "") for item in found)


def test_an_unknown_statistic_is_told_those_that_there_are() -> None:
    text = f"{RECIPE}expect main.reward.median > 0.5\n"
    (item,) = compile_source(Source("recipe.rl", text)).diagnostics
    assert item.message == "`main.reward` has no `median`"
    assert item.help is not None
    assert "`.first`, `.min`, `.max`, `.mean`, `.sum`; alone it is the last" in item.help
    (near,) = compile_source(Source("r.rl", text.replace("median", "sum_"))).diagnostics
    assert near.help == "did you mean `main.reward.sums`?"


def test_an_incomplete_stage_is_checked_as_far_as_it_is_known() -> None:
    text = (RECIPE + EVALS).replace("adam(rate)", "adam(rat)").replace("samples", "sampels")
    unknown = "main.rewrd > 0", "main.cost.high < 20", "policy.rank > 1", "main.cost.hgih < $9"
    may_be = "main.kl.reference < 1", "main.optimizer.learning_rate < 1", "heldout.pass_at_2 > 0"
    known = "main.reward.max > 0", "main.envs.sums.rollouts.group < 9", "policy.lora_rank > 1"
    found = compiled(*unknown, *may_be, *known, text=text).diagnostics
    reported = [(item.code, item.span and item.span.text) for item in found]
    assert reported[-4:] == [
        ("RL0670", "main.rewrd"),
        ("RL0672", "20"),
        ("RL0670", "policy.rank"),
        ("RL0670", "main.cost.hgih"),
    ]
    assert "RL067" not in "".join(code for code, _ in reported[:-4])
    assert found[-1].help == "did you mean `main.cost.high`?"


def test_a_plan_keeps_its_expectations_and_one_without_is_what_it_was() -> None:
    bare, plan = plan_of(), plan_of("heldout.pass_at_1 >= 90%", "main.cost.high < $20")
    assert "expectations" not in plan_to_dict(bare)
    assert plan_hash(bare) != plan_hash(plan)
    assert plan_from_dict(json.loads(json.dumps(plan_to_dict(plan)))) == plan
    assert plan.provenance["expect heldout.pass_at_1 >="] == "recipe.rl:13"


def test_explain_says_what_holds_and_what_waits() -> None:
    plan = plan_of("main.steps <= 20", "heldout.pass_at_1.max >= 90%")
    text = explain_text(plan, Diagnostics())
    assert re.search(r"main.steps <= 20 +passes: it is 20 +recipe.rl:13", text)
    assert "after the run: eval/heldout/pass@1 of heldout, at its highest" in text
    before, after = explain_dict(plan, "recipe.rl", Diagnostics())["expectations"]
    assert (before["held"], before["holds"], before["found"]) == ("before", True, 20)
    assert after == {"text": "heldout.pass_at_1.max >= 90%", "held": "after"}
    rehearsal = explain_text(rehearse(plan), Diagnostics())
    assert rehearsal.count("not checked: a rehearsal") == 2


def test_a_difference_names_the_expectation() -> None:
    before, after = plan_of("main.cost.high < $20"), plan_of("main.cost.high < $30")
    text = diff_text(diff_plans(before, after), "a", "b")
    assert "expect main.cost.high <  $20 → $30" in text
    assert "expect main.cost.high <  — → $30" in diff_text(diff_plans(plan_of(), after), "a", "b")


def test_a_script_says_what_was_expected_and_refuses_what_it_cannot_hold() -> None:
    text = script(plan_of("main.steps <= 20", text=RECIPE))
    assert "Expected, and so when this was written: main.steps <= 20" in text
    compile(text, "train.py", "exec")
    with pytest.raises(EmitError, match=r"`expect main\.reward > 0\.5`: a script judges what it"):
        script(plan_of("main.reward > 0.5", text=RECIPE))


def test_trials_of_a_sweep_expect_what_their_values_say() -> None:
    sweep = "sweep rates { of = main  over = { main.steps = [10, 20] } }\n"
    expected = "expect main.reward.sum > 0.1 * main.steps\n".replace("main.steps", "20")
    text = RECIPE + sweep + expected + "expect heldout.pass_at_1 > 0.5\n" + EVALS
    made = compile_source(Source("recipe.rl", text))
    assert made.plan is not None
    (plan, _) = (made.sweeps[0].plan_of(one, 1) for one in made.sweeps[0].configurations())
    assert [one.text for one in plan.expectations] == [
        "main.reward.sum > 2",
        "heldout.pass_at_1 > 50%",
    ]
    found = compile_source(
        Source("recipe.rl", f"{text}expect main.steps <= 15\n".replace("steps = 20", "steps = 12"))
    ).diagnostics
    assert [item.code for item in found] == ["RL0674"]


QUANTITY = QuantityPlan("main.reward", "metric", "main", "reward/mean", "number", "last")


@given(st.floats(-10, 10), st.floats(-10, 10), st.sampled_from(sorted(COMPARES)))
def test_exactly_one_of_an_expectation_and_its_opposite_holds(
    found: float, constant: float, op: Any
) -> None:
    opposite: Any = {"<": ">=", ">=": "<", "==": "!=", "!=": "==", "<=": ">", ">": "<="}
    one = ExpectationPlan(QUANTITY, op, constant)
    other = evolve(one, op=opposite[op])
    assert one.judged(lambda _: found).holds is not other.judged(lambda _: found).holds
    assert one.judged(lambda _: None).holds is None


def test_the_page_of_expectations_compiles() -> None:
    page = (ROOT / "docs" / "expectations.md").read_text(encoding="utf-8")
    blocks = re.findall("```rl\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    found = compile_source(Source("recipe.rl", RECIPE + EVALS + "".join(blocks))).diagnostics
    assert found == [], render_human(found, color=False)
