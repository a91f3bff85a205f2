"""Advantages that a recipe declares: what is said of wrong ones, what of right ones follows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from plan_recipes import first_train, planned, recipe
from stage_parts import flat

from rlc.compile.recipe import CompileResult, compile_source
from rlc.explanation.schemes import scheme_formulas
from rlc.lang.source import Source
from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_to_dict
from rlc.plan.graph import barriers

WRONG = {
    "episode = reward": (
        "RL0643",
        "`episode` is one value an episode, and this is one value a turn",
    ),
    "turn = parts": (
        "RL0643",
        "`turn` is one value a turn, and this is one value a turn and component of the reward",
    ),
    "keep = reward  episode = sum(reward)": (
        "RL0643",
        "`keep` is one value an episode, and this is one value a turn",
    ),
    "keep = running(sum(reward), 0.9)  episode = sum(reward)": (
        "RL0643",
        "`keep` cannot read a moving average: only the advantage has them",
    ),
    "total = sum(reward)": ("RL0647", "nothing says what the advantage `mine` is"),
    "episode = sum(reward)  turn = reward": (
        "RL0647",
        "`mine` is both an advantage of each episode and one of each turn",
    ),
    "episode = sum(rewards)": ("RL0640", "there is no `rewards` in the advantage"),
    "episode = average(sum(reward))": ("RL0641", "there is no function `average`"),
    "episode = sum(logp)": ("RL0640", "there is no `logp` in the advantage"),
    "episode = sum(reward) - mean(sum(reward), over = task)": ("RL0643", "`task` is no scope"),
    "episode = sum(reward) - mean(sum(reward), over = others(all))": (
        "RL0643",
        "`others(all)` is no scope",
    ),
    "episode = sum(reward) / std(sum(reward))": ("RL0642", "over what is this `std`?"),
    "episode = sum(sum(reward))": (
        "RL0643",
        "`sum(x, over = group)` takes one value a turn, and this is one value an episode",
    ),
    "episode = sum(reward) - mean(2, over = group)": (
        "RL0643",
        "`mean(x, over = group)` takes one value an episode, and this is a number",
    ),
    "episode = sum(reward) - rank(sum(reward), over = others)": (
        "RL0643",
        "`rank` is taken over group, role, env, batch_role, batch, not over others(group)",
    ),
    "episode = exp(sum(reward), over = group)": ("RL0642", "`exp` is not taken over anything"),
    "episode = mean(sum(reward), over = group, weigh = length)": (
        "RL0642",
        "`mean` has no argument called `weigh`",
    ),
    "episode = quantile(sum(reward), over = group)": (
        "RL0642",
        "`quantile` takes 2 arguments, found 1",
    ),
    "episode = quantile(sum(reward), length, over = group)": (
        "RL0643",
        "`quantile(x, q, over = group)` takes a number for `q`",
    ),
    "episode = discounted(sum(reward), 0.9)": (
        "RL0643",
        "`discounted(x, gamma)` takes one value a turn, and this is one value an episode",
    ),
    "episode = sum(reward) > 0": ("RL0643", "the result is a condition, not a value"),
    "episode = where(sum(reward), 1, 0)": (
        "RL0643",
        "`where` decides by a comparison, and this is a value",
    ),
    "episode = length": (
        "RL0655",
        "the advantage does not depend on the reward: nothing is learnt from it",
    ),
    "total = sum(reward)  spare = 2 * total  episode = total": (
        "RL0645",
        "the advantage is not made of `spare`",
    ),
    "episode = log(sum(reward))": (
        "RL0657",
        "`log(sum(reward))` can be undefined: it is a logarithm of what can be 0 or less",
    ),
    "late = early  early = sum(reward)  episode = late": (
        "RL0646",
        "`early` is defined further down",
    ),
    "reward = 3  episode = sum(reward)": (
        "RL0653",
        "no part of an advantage can be called `reward`",
    ),
    "episode = sum(reward) * scale": ("RL0640", "there is no `scale` in the advantage"),
    "token = sum(reward)  turn = reward": (
        "RL0647",
        "`mine` is both an advantage of each turn and one of each token",
    ),
    "turn = reward - logq": (
        "RL0643",
        "`turn` is one value a turn, and this is one value a token",
    ),
    "token = parts - logq": (
        "RL0643",
        "`a - b` takes values that belong together, and these are one value a turn and component "
        "of the reward and one value a token",
    ),
    "token = reward - mean(logq, over = batch)": (
        "RL0643",
        "`mean(x, over = group)` takes one value an episode, and this is one value a token",
    ),
    "episode = sum(reward) - sum(tokens, over = tokens)": (
        "RL0643",
        "`sum(x, over = group)` takes one value a token, and this is one value a turn",
    ),
    "token = reward * running(logq, 0.9)": (
        "RL0643",
        "`running(x, decay)` takes one value an episode, and this is one value a token",
    ),
    "token = discounted(reward, logq)": (
        "RL0643",
        "`gamma` of `discounted` is a number here, not one value a token",
    ),
    "episode = sum(reward) - mean(sum(reward), over = group, weight = tokens)": (
        "RL0643",
        "`weight` of `mean` is one value an episode here, not one value a turn",
    ),
    "token = sum(reward) * logp": ("RL0640", "there is no `logp` in the advantage"),
    "token = sum(reward) - log(count(logq, over = tokens))": (
        "RL0657",
        "`log(count(logq, over = tokens))` can be undefined: it is a logarithm of what can be 0 or "
        "less",
    ),
    "token = sum(reward) + logq - ref": (
        "RL0648",
        "`mine` reads `ref`, and this stage has no reference",
    ),
    "token = process - mean(sum(process), over = group)": (
        "RL0648",
        "`mine` reads `process`, and `guess` gives no process rewards",
    ),
    "token = teacher - logq": ("RL0648", "`mine` reads `teacher`, and nothing teaches `guess`"),
    "token = -logq": (
        "RL0655",
        "the advantage does not depend on the reward: nothing is learnt from it",
    ),
    "episode = sum(reward) - role": ("RL0640", "there is no `role` in the advantage"),
}


def compiled(fields: str, value: str = "mine") -> CompileResult:
    text = f"{recipe('quickstart')}\nadvantage mine {{ {fields} }}\n"
    return compile_source(Source("test.rl", text), {"main.advantage": value})


@pytest.mark.parametrize("fields", WRONG)
def test_what_is_wrong_with_an_advantage_is_said(fields: str) -> None:
    found = [(item.code, item.message) for item in compiled(fields).diagnostics]
    assert found == [WRONG[fields]]


def test_a_group_of_one_that_is_compared_with_itself_is_a_mistake() -> None:
    """Unless the formula says what a single one gets."""
    text = recipe("quickstart")
    compared = "total = sum(reward)  episode = total - mean(total, over = group{})"
    for more, codes in (("", {"RL0308"}), (", singleton = 0", set())):
        source = f"{text}\nadvantage mine {{ {compared.format(more)} }}\n"
        settings = {"main.advantage": "mine", "main.batch": "groups(16, group_size = 1)"}
        found = compile_source(Source("test.rl", source), settings).diagnostics
        assert {item.code for item in found} == codes


def test_a_scope_of_the_whole_batch_is_what_a_gradient_waits_for() -> None:
    whole = "total = sum(reward)  episode = total / (std(total, over = batch) + 1e-6)"
    within = "total = sum(reward)  episode = total / (std(total, over = group) + 1e-6)"
    for fields, waits in (
        (whole, ["`over = batch` in the advantage compares all of it"]),
        (within, []),
    ):
        made = compiled(fields)
        assert made.plan is not None
        stage = flat(first_train(made.plan))
        given = stage.advantage, stage.loss, stage.aggregate, stage.kl, stage.batch
        assert [barrier.why for barrier in barriers(*given)] == waits


def test_an_advantage_is_used_with_arguments_amended_and_followed_by_steps() -> None:
    text = f"""{recipe("quickstart")}
advantage mine(
  eps: float(0, 1) = 1e-6, over_all: bool = false, scope: word(group, batch) = group
) {{
  total   = sum(reward)
  centred = total - mean(total, over = scope)
  episode = where(over_all, centred, centred / (std(total, over = scope) + eps))
}}
advantage halved = mine(eps = 0.5) {{ episode = centred / 2 }}
"""
    for value, shown in (
        ("mine()", "A = centred / (std_group(total) + 1e-6)"),
        ("mine(scope = batch, over_all = true)", "A = total − mean_batch(total)"),
        ("halved", "A = centred / 2"),
        ("mine() |> clip(-1, 1)", "A = min(max(centred / (std_group(total) + 1e-6), −1), 1)"),
    ):
        scheme = flat(first_train(planned(text, f"main.advantage={value}"))).advantage
        assert scheme_formulas(scheme)[-1].text == shown


def test_a_plan_keeps_its_formulas_and_refuses_what_no_formula_is() -> None:
    made = compiled("keep = count(sum(reward), over = group) - 1  episode = sum(reward)")
    assert made.plan is not None
    data: Any = json.loads(json.dumps(plan_to_dict(made.plan)))
    assert plan_from_dict(data) == made.plan
    nodes = data["stages"][0]["objective"]["advantage"]["keep"]["nodes"]
    next(node for node in nodes if node["op"] == "count over")["over"] = "everybody"
    with pytest.raises(PlanFormatError, match="advantage"):
        plan_from_dict(data)
