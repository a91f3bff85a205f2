"""Losses over preferences of a recipe's own: what a stage makes of them, and what is wrong with
them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from run_support import block

from rlc.catalog.index import preference_traits
from rlc.compile.recipe import CompileResult, compile_source
from rlc.explanation.stages import stage_formulas
from rlc.lang.source import Source
from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.parts import PreferenceLossPlan
from rlc.plan.records import Plan
from rlc.plan.stages import PreferenceLoss, Training

POLICY = block("model", "policy", {"base": '"tiny"', "lora_rank": "8"})
MARGIN = """
preference_loss held(beta = 0.1, floor = 2.0) {
  margin = chosen - chosen_ref - (rejected - rejected_ref)
  fallen = -sum(min(chosen_token - chosen_ref_token, 0)) / chosen_length
  pair   = softplus(-beta * margin) + floor * fallen
}
"""


def compiled(declared: str, loss: str, *changes: str, **fields: str) -> CompileResult:
    given = {"model": "policy", "data": 'pairs("hub:some/pairs")', "loss": loss}
    given |= {"batch": "16", "steps": "8", "optimizer": "adam(3e-5)"} | fields
    text = POLICY + declared + block("preference", "align", given)
    return compile_source(Source("recipe.rl", text), dict(one.split(" = ") for one in changes))


def planned(declared: str, loss: str, *changes: str, **fields: str) -> Plan:
    made = compiled(declared, loss, *changes, **fields)
    assert [d.message for d in made.diagnostics] == []
    assert made.plan is not None
    return made.plan


def objective(plan: Plan) -> PreferenceLoss:
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    return stage.of(PreferenceLoss)


def loss_of(plan: Plan) -> PreferenceLossPlan:
    return objective(plan).loss


def test_a_loss_of_rlc_by_another_name_is_that_loss() -> None:
    mine = "preference_loss mine(b = 0.2) {\n  better = chosen - chosen_ref\n"
    mine += "  pair = -log(sigmoid(b * (better + rejected_ref - rejected)))\n}\n"
    own, named = planned(mine, "mine()"), planned("", "dpo(beta = 0.2)")
    assert plan_hash(own) == plan_hash(named)
    assert own.provenance["stages.align.loss.name"].endswith(", which is this one")


def test_parameters_amendments_and_other_names() -> None:
    more = "preference_loss more = held(beta = 0.2) { fallen = chosen_nll }\n"
    more += "preference_loss same = more\n"
    whole = "preference_loss same {\n  margin = chosen - chosen_ref - (rejected - rejected_ref)\n"
    whole += "  fallen = chosen_nll\n  pair = softplus(-0.2 * margin) + 2 * fallen\n}\n"
    assert (
        loss_of(planned(MARGIN + more, "same")).program == loss_of(planned(whole, "same")).program
    )
    plain = loss_of(planned(MARGIN, "held()"))
    for change in ("align.loss.beta = 0.3", "held.fallen = chosen_nll"):
        assert loss_of(planned(MARGIN, "held(beta = 0.1)", change)).program != plain.program


def test_a_name_for_one_of_rlc_can_still_be_declared_and_set() -> None:
    declared = "preference_loss gentle(b) = dpo(beta = b)\npreference_loss mine = gentle(0.3)\n"
    declared += "preference_loss other = mine\n"
    assert loss_of(planned(declared, "other")) == loss_of(planned("", "dpo(beta = 0.3)"))
    set_later = planned("preference_loss mine = dpo()\n", "mine", "mine.beta = 0.3")
    assert loss_of(set_later).config["beta"] == 0.3


def test_traits_follow_from_what_it_reads() -> None:
    held = preference_traits(loss_of(planned(MARGIN, "held()")))
    assert (held.reference, held.labelled, held.mean) == (True, False, True)
    bare = "preference_loss mine { pair = softplus(rejected - chosen) * 2 }\n"
    plan = planned(bare, "mine")
    assert preference_traits(loss_of(plan)).reference is False
    assert objective(plan).reference is None
    rated = "preference_loss mine { reply = where(good, softplus(-logp), softplus(logp)) }\n"
    data = 'labelled("hub:some/rated")'
    assert preference_traits(loss_of(planned(rated, "mine", data=data))).labelled
    (found,) = compiled(bare, "mine", data=data).diagnostics
    assert (found.code, found.message) == (
        "RL0722",
        "`mine` takes pairs, and `labelled()` has single replies",
    )


def test_a_plan_keeps_its_expression_and_older_plans_have_none() -> None:
    plan = planned(MARGIN, "held()")
    data: Any = json.loads(json.dumps(plan_to_dict(plan)))
    assert plan_from_dict(data) == plan
    nodes = data["stages"][0]["objective"]["loss"]["program"]["nodes"]
    nodes[-1] = {"op": "input", "name": "password"}
    with pytest.raises(PlanFormatError, match="loss"):
        plan_from_dict(data)
    named = plan_to_dict(planned("", "dpo()"))
    assert "program" not in named["stages"][0]["objective"]["loss"]


def test_it_is_explained_with_its_derivative() -> None:
    (stage,) = planned(MARGIN, "held()").stages
    lines = stage_formulas(stage)["loss"]
    assert "L = softplus(−0.1 margin) + 2 fallen" in lines
    assert "∂L/∂log p⁻ = 0.1 sigmoid(−0.1 margin)" in lines
    assert any(line.startswith("∂L/∂log p⁺_t = where(log p⁺_t − log p_ref⁺_t") for line in lines)


WRONG = {
    "pair = softplus(0.1 * (chosen - rejected))": (
        "RL0660",
        "this loss makes better replies less likely beside worse replies",
    ),
    "pair = stop(chosen) - stop(rejected)": (
        "RL0644",
        "no gradient reaches `chosen`: the loss would train nothing",
    ),
    "pair = softplus(rejected - stop(chosen))": (
        "RL0644",
        "no gradient reaches `chosen`: nothing is learnt of the better replies",
    ),
    "pair = max(rejected - chosen - 500, 0)": (
        "RL0644",
        "no gradient reaches replies that are near the reference: nothing is learnt",
    ),
    "pair = 3 + 1": (
        "RL0644",
        "a preference loss is one value a pair or one value a reply, and this is a number",
    ),
    "pair = rejected": (
        "RL0655",
        "no gradient reaches `chosen`: nothing is learnt of the better replies",
    ),
    "pair = -(chosen + rejected)": (
        "RL0661",
        "this loss makes worse replies more likely, as better replies",
    ),
    "pair = softplus(-0.1 * (policy_chosen_logps - rejected))": (
        "RL0640",
        "there is no `policy_chosen_logps` in a preference loss",
    ),
    "pair = log(rejected - chosen)": (
        "RL0657",
        "`log(rejected - chosen)` can be undefined: it is a logarithm of what can be 0 or less",
    ),
    "pair = exp(-1000 * chosen) * (rejected - chosen)": (
        "RL0650",
        "`exp(-1000 * chosen)` is too large a number",
    ),
    "spare = chosen * 2  pair = softplus(0.1 * (rejected - chosen))": (
        "RL0645",
        "the loss is not made of `spare`",
    ),
    "pear = softplus(rejected - chosen)": ("RL0647", "nothing says what the loss `mine` is"),
    "pair = softplus(rejected - chosen)  reply = softplus(-logp)": (
        "RL0647",
        "`mine` is both a loss of each pair and one of each reply",
    ),
    "pair = softplus(rejected_token - chosen)": (
        "RL0643",
        "`pair` is one value for each pair, and this is one value for each token of the worse "
        "reply",
    ),
    "pair = sum(rejected_token - chosen_token)": (
        "RL0643",
        "`a - b` takes values that belong together, and these are one value a token of the worse "
        "reply and one value a token of the better reply",
    ),
    "pair = softplus(mean(rejected) - chosen)": (
        "RL0643",
        "`mean(x)` is over tokens, and this is one value a pair",
    ),
    "pair = softplus(ref - logp)": (
        "RL0643",
        "`pair` is one value for each pair, and this is one value for each reply",
    ),
    "chosen = 3  pair = softplus(rejected - chosen)": (
        "RL0653",
        "no part of a loss can be called `chosen`",
    ),
    "pair = where(chosen <= 0, softplus(rejected - chosen), 0)": (
        "RL0652",
        "`chosen <= 0` always holds",
    ),
    "reply = softplus(-0.1 * (logp - ref))": (
        "RL0655",
        "the loss does not depend on `good`: labels have no effect on training",
    ),
    "reply = where(good, softplus(logp - ref), softplus(ref - logp))": (
        "RL0660",
        "this loss makes good replies less likely beside bad replies",
    ),
}


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_wrong_with_a_loss_is_said(fields: str) -> None:
    made = compiled(f"preference_loss mine {{ {fields} }}\n", "mine")
    assert [(d.code, d.message) for d in made.diagnostics] == [WRONG[fields]]


def test_names_of_other_libraries_are_corrected() -> None:
    made = compiled("preference_loss mine { pair = -policy_chosen_logps + rejected }\n", "mine")
    (found,) = made.diagnostics
    assert found.fix is not None
    assert found.fix.title == "write `chosen`"
