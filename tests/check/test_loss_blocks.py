"""Losses of a recipe's own: what a stage makes of them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from run_support import TINY, compiled, train
from stage_parts import changed, flat

from rlc.catalog.index import loss_traits
from rlc.compile.recipe import compile_source
from rlc.lang.source import Source
from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_hash, plan_to_dict
from rlc.plan.graph import in_parts
from rlc.plan.parts import LossPlan
from rlc.plan.records import Plan
from rlc.plan.stages import PolicyGradient, Training
from rlc.pricing.cost import stage_cost

SEQUENCE = """
loss shared(low = 0.9, high = 1.1) {
  s        = exp(mean(logp - logq))
  sequence = -min(s * mean(adv), clip(s, low, high) * mean(adv))
}
"""
GATE = """
loss gated(tau = 1.0) {
  gate  = sigmoid(tau * (ratio - 1))
  token = -gate * adv
}
"""


def planned(declared: str, **fields: str) -> Plan:
    return compiled(
        TINY + declared + train(batch="groups(3, group_size = 4, updates = 2)", **fields)
    )


def loss_of(plan: Plan) -> LossPlan:
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    return stage.of(PolicyGradient).loss


def test_a_loss_of_the_service_by_another_name_is_that_loss() -> None:
    mine = "loss mine { token = -min(ratio * adv, clip(ratio, 80%, 1.2) * adv) }\n"
    own, named = planned(mine, loss="mine"), planned("", loss="ppo()")
    assert own == named
    assert plan_hash(own) == plan_hash(named)
    said = own.provenance["stages.main.loss.name"]
    assert said == f"`mine`, recipe.rl:{TINY.count(chr(10)) + 1}, which is this one"


@pytest.mark.parametrize(
    ("fields", "served"),
    [
        ({}, True),
        ({"kl": "reference(policy.base, coef = 0.1)"}, False),
        ({"advantage": "returns(gamma = 0.9)"}, False),
    ],
    ids=["one advantage", "a penalty on each token", "an advantage for each turn"],
)
def test_it_is_where_all_tokens_have_the_advantage_of_their_sequence(
    fields: dict[str, str], served: bool
) -> None:
    loss = loss_of(planned(SEQUENCE, loss="shared()", **fields))
    assert (loss.name == "gspo") == loss.mean == served
    assert loss.by_sequence
    assert (loss.program is None) == served


@pytest.mark.parametrize(
    ("token", "large"),
    [
        ("-ratio * adv * (exp(1000))", "exp(1000)"),
        ("-ratio * adv * 1e308 * 1e308", "-ratio * adv * 1e308 * 1e308"),
        ("-adv * exp(800 + 0 * logq) * ratio", "exp(800 + 0 * logq)"),
        ("-where(adv > 0, 1e200 * 1e200, 1) * ratio * adv", "1e200 * 1e200"),
        ("-adv * sigmoid(1e308 * (1e3 * (ratio - 1) + 1))", None),  # 1 is as large as it gets
    ],
)
def test_a_number_that_is_too_large_is_an_error(token: str, large: str | None) -> None:
    text = TINY + f"loss mine {{ token = {token} }}\n" + train(loss="mine")
    found = [(d.code, d.message) for d in compile_source(Source("recipe.rl", text)).diagnostics]
    expected = [] if large is None else [("RL0650", f"`{large}` is too large a number")]
    assert [item for item in found if item[0] == "RL0650"] == expected


def test_a_power_is_not_corrected_to_a_product() -> None:
    text = TINY + "loss mine { token = -ratio ** 2 * adv }\n" + train(loss="mine")
    (found,) = compile_source(Source("recipe.rl", text)).diagnostics
    assert found.code == "RL0010"
    assert found.fix is not None
    assert not found.fix.safe


def test_parts_can_be_replaced_and_added() -> None:
    more = "loss more = gated(tau = 2) { extra = softplus(logp)  token = -gate * adv * extra }\n"
    whole = "loss more { gate = sigmoid(2 * (ratio - 1))  extra = softplus(logp)\n"
    whole += "token = -gate * adv * extra }\n"
    assert planned(GATE + more, loss="more") == planned(whole, loss="more")


def test_the_command_line_sets_parts_and_parameters() -> None:
    text = TINY + GATE + train(loss="gated(tau = 2)")
    for path, part in (
        ("main.loss.tau", "3"),
        ("gated.gate", "ratio"),
        ("gated.token", "-logp * adv"),
    ):
        changed = compiled(text, {path: part})
        assert plan_hash(changed) != plan_hash(compiled(text))
    refused = compile_source(Source("recipe.rl", text), {"gated.gate": "rho"})
    assert "RL0640" in [item.code for item in refused.diagnostics]


def test_traits_follow_from_the_expression() -> None:
    gated = loss_traits(loss_of(planned(GATE, loss="gated()")))
    assert gated.takes_stale
    assert not gated.weighted
    pulled = "loss pulled { token = (logp - logq) * (logp - logq) - ratio * adv + ref }\n"
    traits = loss_traits(
        loss_of(planned(pulled, loss="pulled", kl="reference(policy.base, coef = 0)"))
    )
    assert traits.weighted
    assert traits.reference
    assert not traits.takes_stale


def test_a_plan_keeps_its_expression_and_refuses_another() -> None:
    plan = planned(GATE, loss="gated()")
    data: Any = json.loads(json.dumps(plan_to_dict(plan)))
    assert plan_from_dict(data) == plan
    nodes = data["stages"][0]["objective"]["loss"]["program"]["nodes"]
    before = nodes[-1]
    for wrong in (
        {**before, "op": "eval"},
        {**before, "args": [len(nodes)]},
        {"op": "input", "name": "password"},
    ):
        nodes[-1] = wrong
        with pytest.raises(PlanFormatError, match="loss"):
            plan_from_dict(data)


def test_what_is_computed_over_a_batch_waits_for_it() -> None:
    declared = TINY + "loss held { token = -ratio * adv * batch_top(logp, 10%) }\n"
    fields = {"advantage": "grpo()", "aggregate": "token_sum()", "overlap": "streamed(2)"}
    text = declared + train(loss="held", **fields)
    made = compile_source(Source("recipe.rl", text))
    (warning,) = (item for item in made.diagnostics if item.code == "RL0319")
    assert [label.text for label in warning.labels] == ["`held` computes something over it"]
    assert made.plan is not None
    (stage,) = made.plan.stages
    assert isinstance(stage, Training)
    assert {"datums", "forward_backward"}.isdisjoint(in_parts(stage))
    assert "advantages" in in_parts(stage)
    tokens = stage_cost(stage).step_tokens["low"]
    plain = changed(stage, loss=LossPlan("importance_sampling", {}))
    less = stage_cost(plain).step_tokens["low"]
    assert tokens.prefill == less.prefill + less.train  # the trainer's logprobs are read first


@pytest.mark.parametrize(
    ("fields", "served"),
    [
        ({}, True),
        ({"kl": "reference(policy.base, coef = 0.1)"}, False),  # each token has its own advantage
        ({"teacher": "reverse_kl(expert, coef = 0.1)"}, False),
    ],
)
def test_a_sequence_loss_is_the_services_where_its_tokens_share_an_advantage(
    fields: dict[str, str], served: bool
) -> None:
    text = (
        "s = exp(mean(logp - logq))  sequence = -min(s * mean(adv), clip(s, 0.9, 1.1) * mean(adv))"
    )
    expert = 'model large { base = "tiny"  lora_rank = 8 }\n' + train(
        "expert", model="large", loss="importance_sampling()"
    )
    batch = {"loss": "own", "batch": "groups(3, group_size = 4, updates = 2)"}
    recipe = TINY + f"loss own {{ {text} }}\n" + expert + train(**batch, **fields)
    made = compile_source(Source("recipe.rl", recipe))
    assert made.plan is not None
    assert (flat(made.plan.stages[-1]).loss.program is None) is served
