"""Rewards that compare the members of a group: what `rlc check` says of them, and `rlc explain`."""

from __future__ import annotations

import json

import pytest

from rlc.compile.recipe import compile_source
from rlc.explanation.stages import stage_formulas
from rlc.lang.diagnostics import Diagnostic
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_to_dict
from rlc.plan.records import Plan

BY_PASS_RATE = "total - 0.2 * mean(where(total >= 1, 1, 0), over = group) * tokens / 1024"
BATCH = "groups(4, group_size = 8)"
EVAL = (
    "eval held { model = main  env = sums  tasks = 4  samples = {samples}  metrics = [{metric}] }"
)


def check(
    shape: str, batch: str = BATCH, more: str = "", advantage: str = "rebn()"
) -> tuple[Plan | None, list[Diagnostic]]:
    text = f"""\
model policy {{ base = "tiny"  lora_rank = 4 }}
env sums = problems(countdown, grader = {{ correct = countdown }}, samples = 100){shape}
train main {{
  model = policy  env = sums  batch = {batch}  sampling = sample(max_tokens = 64)
  advantage = {advantage}  loss = importance_sampling()  optimizer = adam(1e-3)  steps = 2
}}
{more}"""
    result = compile_source(Source("recipe.rl", text))
    return result.plan, list(result.diagnostics)


def found(reward: str, **more: str) -> list[tuple[str, str]]:
    """The codes and messages of what is found in a recipe with a shaped reward."""
    _, items = check(f" |> reward({reward})", **more)
    return [(item.code, item.message) for item in items]


@pytest.mark.parametrize(
    "reward",
    [
        BY_PASS_RATE,
        "total - 0.1 * rank(tokens, over = group, weight = total >= 1)",
        "total * (1 - 0.5 * clip((tokens - mean(tokens, over = group)) / 1000, 0, 1))",
        "correct - mean(correct, over = others(group))",
        "total - 0.1 * std(tokens, over = group) / mean(tokens + 1, over = others)",
        "max, shaped = total - min(total, over = group), low = 0",
    ],
)
def test_statistics_of_a_group_have_no_findings(reward: str) -> None:
    assert found(reward) == []


# What is written, where the finding is, its code, its message and what it says to write.
WRONG = [
    (
        "total - mean(total, over = batch)",
        "mean(total, over = batch)",
        "RL0643",
        "`mean` is taken over group, role, not over batch",
        "once its group is over: compare with more in an `advantage` of your own",
    ),
    (
        "total - last(tokens) + sum(tokens, over = turns)",
        "last",
        "RL0641",
        "there is no function `last`",
        "known: ",
    ),
    (
        "total - sum(tokens, over = turns)",
        "sum(tokens, over = turns)",
        "RL0643",
        "`sum` is taken over group, role, not over turns",
        "`total` is one value for all turns already",
    ),
    (
        "total - mean(total)",
        "mean",
        "RL0642",
        "over what is this `mean`?",
        "`mean(x, over = group)`",
    ),
    (
        "total - std(total, over = grop)",
        "grop",
        "RL0643",
        "`grop` is no scope",
        "scopes are `group`, `role`, `others`, `others(scope)`",
    ),
    (
        "total - mean(3, over = group)",
        "3",
        "RL0643",
        "`mean(x, over = group)` takes one value an episode, and this is a number",
        "",
    ),
    (
        "mean(total >= 1, over = group) * total",
        "total >= 1",
        "RL0643",
        "`mean(x, over = group)` takes a value for `x`, not a condition",
        "`where(condition, 1, 0)` makes a value of a condition",
    ),
    (
        "total - rank(tokens, over = others(group))",
        "rank(tokens, over = others(group))",
        "RL0643",
        "`rank` is taken over group, role, not over others(group)",
        "",
    ),
    (
        "total - rank",
        "rank",
        "RL0680",
        "the reward of `countdown` has no component `rank`",
        "the function needs its arguments: `rank(x, over = group)`",
    ),
    (
        "total - quantile(total, tokens, over = group)",
        "tokens",
        "RL0643",
        "`quantile(x, q, over = group)` takes a number for `q`",
        "",
    ),
    (
        "total - mean(total, over = group, weigth = tokens)",
        "weigth",
        "RL0642",
        "`mean` has no argument called `weigth`",
        "`weight`",
    ),
    (
        "turns, shaped = total - mean(total, over = group)",
        "shaped",
        "RL0312",
        "`shaped` counts with `reduce` = `sum` or `mean` or `max` or `min` or `last`; here it is "
        "`turns`",
        "remove `shaped`, or change `reduce`",
    ),
]


@pytest.mark.parametrize(("reward", "place", "code", "message", "help"), WRONG)
def test_what_is_wrong_is_said_with_what_to_write(
    reward: str, place: str, code: str, message: str, help: str
) -> None:
    plan, (item, *_) = check(f" |> reward({reward})")
    assert plan is None
    assert (item.code, item.message, item.span and item.span.text) == (code, message, place)
    assert help in (item.help or "")


def test_a_component_may_have_the_name_of_a_statistic() -> None:
    graded = "grader = { count = countdown }) |> reward(count - 0.1 * count(tokens, over = group))"
    text = f"env sums = problems(countdown, {graded}"
    assert [item.code for item in compile_source(Source("r.rl", text)).diagnostics] == ["RL0301"]


@pytest.mark.parametrize(
    ("reward", "finding"),
    [
        ("mean(total, over = group)", ("RL0681", "this reward is the same for all members of a")),
        ("0 * rank(total, over = group)", ("RL0681", "this reward is the same for every episode")),
        ("mean(total, over = group) - max(total, 0)", ("RL0683", "the more an episode of `sums` ")),
        ("-rank(tokens, over = group)", ("RL0684", "an episode of `sums` that earns nothing can")),
        (
            "correct - 100 * rank(tokens, over = group)",
            ("RL0685", "`tokens` moves the reward 400 times as much as all else"),
        ),
    ],
)
def test_what_is_earned_is_paid_in_a_group_too(reward: str, finding: tuple[str, str]) -> None:
    ((code, message),) = found(reward)
    assert code == finding[0]
    assert message.startswith(finding[1])


def test_a_range_that_holds_0_is_no_divisor() -> None:
    ((code, message),) = found(
        "total - (tokens - min(tokens, over = group)) / (4 - min(tokens, over = group))"
    )
    assert code == "RL0657"
    assert message.endswith("can be undefined: it is a division by what can be 0")
    assert found("total - tokens / max(tokens + 1, over = group)") == []


def test_who_has_no_group_is_told_so() -> None:
    nothing = "nothing to compare with: a mean of the group is the value itself"
    alone = found(BY_PASS_RATE, batch="groups(4, group_size = 1)")
    assert alone == [("RL0308", f"a group of 1 has {nothing}")]
    turns = found(BY_PASS_RATE, batch="turns(64)")
    assert turns == [("RL0308", f"`turns()` plays every task once, and has {nothing}")]
    data = "sft warm { model = policy  data = demonstrations(sums, n = 4)  batch = 2  steps = 2 }"
    shown = [message for code, message in found(BY_PASS_RATE, more=data) if code == "RL0308"]
    assert shown == [f"what is played for `data`, once for each task, has {nothing}"]

    def evaluated(samples: int, metric: str) -> list[str]:
        text = EVAL.replace("{samples}", str(samples)).replace("{metric}", metric)
        items = found(BY_PASS_RATE, more=text)
        return [message for code, message in items if code == "RL0308"]

    assert evaluated(8, "mean_reward()") == evaluated(1, "pass_at(1)") == []
    assert evaluated(1, "mean_reward()") == [
        f"an evaluation with one sample of a task has {nothing}"
    ]


def test_the_finding_on_the_advantage_stays() -> None:
    _, items = check(
        f" |> reward({BY_PASS_RATE})", batch="groups(4, group_size = 1)", advantage="grpo()"
    )
    assert [(item.code, item.severity) for item in items] == [
        ("RL0308", "warning"),
        ("RL0308", "error"),
    ]


def test_roles_are_compared_with_their_like() -> None:
    judged, shape = " |> solver_judge(solvers = 2)", " |> reward(total - mean(total, over = {}))"
    by_role = "grpo(scope = role)"
    _, (item,) = check(judged + shape.format("group"), advantage=by_role)
    assert item.code == "RL0425"
    assert item.help == "compare each with its like: `over = role`"
    assert check(judged + shape.format("role"), advantage=by_role)[1] == []
    _, (item,) = check(shape.format("role"))
    assert (item.code, item.help) == ("RL0423", "write `over = group`")


def test_a_plan_keeps_the_reward_and_explains_it() -> None:
    plan, _ = check(f" |> reward({BY_PASS_RATE})")
    assert plan is not None
    data = json.loads(json.dumps(plan_to_dict(plan)))
    assert plan_from_dict(data) == plan
    formulas = stage_formulas(plan.stages[0])["reward of sums"]
    shown = "reward = total − 0.2 mean_group(where(total ≥ 1, 1, 0)) tokens / 1024"
    assert shown in formulas


def test_a_plan_of_an_older_version_is_read() -> None:
    plan, _ = check(" |> reward(total - 0.001 * tokens)")
    assert plan is not None
    data = plan_to_dict(plan)
    older = json.loads(json.dumps(data).replace('"shape": "episode"', '"shape": "number"'))
    assert older != data
    assert plan_from_dict(older) == plan
