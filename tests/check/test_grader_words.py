"""Graders in a recipe: one, several by their names, each with its weight; and as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from stage_parts import flat

from rlc.catalog.plan_files import plan_from_file
from rlc.compile.recipe import compile_source, load
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.source import Source
from rlc.plan.codec import content_hash, plan_hash, plan_to_dict
from rlc.plan.environments import GraderPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Rollouts, Training

RECIPE = """\
model policy {{ base = "tiny" }}
env sums = problems(gsm8k{arguments})
train main {{
  model     = policy
  env       = sums
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo()
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 5
}}
"""


def compiled(arguments: str) -> tuple[Plan | None, Diagnostics]:
    made = compile_source(Source("test.rl", RECIPE.format(arguments=arguments)), seed=1)
    return made.plan, made.diagnostics


def graders(arguments: str) -> tuple[GraderPlan, ...]:
    plan, found = compiled(arguments)
    assert plan is not None, list(found)
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    return stage.of(Rollouts).envs[0].graders


def compared(grader: str, weight: float = 1.0, name: str = "correct", **args: str) -> GraderPlan:
    return GraderPlan(name, weight, grader, args)


def own(function: str, weight: float = 1.0, name: str = "c", **weights: float) -> GraderPlan:
    return GraderPlan(name, weight, "grade_with", {"function": function, "weights": weights})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("", [compared("math")]),
        (", grader = numeric", [compared("numeric")]),
        (", grader = 0.5 * exact", [compared("exact", 0.5)]),
        (', grader = regex("x")', [compared("regex", pattern="x")]),
        (', grader = grade_with("a.b:c")', [own("a.b:c")]),
        (
            ', grader = grade_with("a:c", weights = { near = 1, far = -0.5 })',
            [own("a:c", near=1, far=-0.5)],
        ),
        (
            ', grader = { correct = math  brief = 2 * 0.25 * grade_with("a:b"), no = -1 * exact }',
            [compared("math"), own("a:b", 0.5, "brief"), compared("exact", -1.0, "no")],
        ),
    ],
)
def test_graders_and_their_weights(written: str, meant: list[GraderPlan]) -> None:
    assert list(graders(written)) == meant


@pytest.mark.parametrize(
    ("written", "code", "said", "advice"),
    [
        ("maths", "RL0204", "`maths` is not a grader", "did you mean `math`?"),
        ("python", "RL0204", "`python` is not a grader", "known: `math`, `numeric`, `exact`"),
        ("regex", "RL0208", "`regex` is a builtin and needs its", "write `regex(pattern)`"),
        ("math()", "RL0208", "`math` is a word and has no parentheses", "write `math`"),
        ("numeric * 2", "RL0201", "a weight comes before its grader", "write `2 * numeric`"),
        ('"a.py:b"', "RL0201", "`grader` takes a grader, found a string", "grade_with("),
        ("{ a = math  a = exact }", "RL0110", "the field `a` is given twice", "keep one"),
        ('grade_with("a.py")', "RL0210", "`function` cannot be", '"rewards.py:reward"'),
        ("gem()", "RL0201", "`gem()` is an environment, where a grader belongs", "grade_with("),
        (
            'grade_with("a:b", weights = { x = "1" })',
            "RL0201",
            "the weight of `x` is not a number",
            "0.5",
        ),
    ],
)
def test_what_is_no_grader(written: str, code: str, said: str, advice: str) -> None:
    _, (found,) = compiled(f", grader = {written}")
    assert (found.code, found.message[: len(said)]) == (code, said)
    assert advice in (found.help or "")


OLD = {
    ', grader = regex, pattern = "x"': ', grader = regex("x")',
    ', pattern = "x", grader = regex': ', grader = regex("x")',
    ',\n  grader = regex,  # found\n  pattern = "x",\n  samples = 400\n': (
        ',\n  grader = regex("x"),  # found\n  samples = 400\n'
    ),
    ', grader = "python", samples = 400, grade_with = "a.b:c"': (
        ', grader = grade_with("a.b:c"), samples = 400'
    ),
    ', grader = "numeric"': ", grader = numeric",
}


@pytest.mark.parametrize("old", OLD)
def test_old_spellings_are_read_and_rewritten(old: str) -> None:
    plan, found = compiled(old)
    now, nothing = compiled(OLD[old])
    assert [item.code for item in found] == ["RL0116"]
    assert plan is not None
    assert now is not None
    assert not list(nothing)
    assert plan_hash(plan) == plan_hash(now)
    source = Source("test.rl", RECIPE.format(arguments=old))
    fixed = fix_all(source, lambda text: compile_source(text).diagnostics)
    assert fixed.source.text == RECIPE.format(arguments=OLD[old])


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        ({"grader": "numeric", "grade_with": None, "pattern": None}, compared("numeric")),
        (
            {"grader": "regex", "grade_with": None, "pattern": "x"},
            compared("regex", pattern="x"),
        ),
        (
            {"grader": "python", "grade_with": "a:c", "pattern": None},
            own("a:c", name="correct"),
        ),
    ],
)
def test_plans_of_older_versions_are_read(args: dict[str, Any], meant: GraderPlan) -> None:
    plan, _ = compiled("")
    assert plan is not None
    data = plan_to_dict(plan)
    env = data["stages"][0]["source"]["envs"][0]
    del env["graders"]
    env["args"] |= args
    old = {**data, "plan_hash": content_hash(data)}
    read, intact = plan_from_file(old, "")
    assert intact
    (stage,) = read.stages
    assert isinstance(stage, Training)
    assert flat(stage).envs[0].graders == (meant,)
    assert flat(stage).envs[0].args.keys().isdisjoint(args)


def test_rows_are_prompts_or_demonstrations(tmp_path: Path) -> None:
    """One name means an environment where one belongs, and data where those belong."""
    (tmp_path / "rows.jsonl").write_text('{"prompt": "Hi.", "reply": "Hello."}\n')
    recipe = tmp_path / "both.rl"
    recipe.write_text(
        RECIPE.format(arguments="").replace(
            "problems(gsm8k)", 'rows("rows.jsonl", grader = grade_with("a.py:b"))'
        )
        + 'sft warm { model = policy  data = rows("rows.jsonl", n = 1)  steps = 1'
        "  optimizer = adam(1e-4) }\n"
    )
    (tmp_path / "a.py").touch()
    made = load(recipe, ['sums.prompt="reply"'])
    assert made.plan is not None, list(made.diagnostics)
    (env,) = (env for stage in made.plan.stages for env in stage.played)
    (data,) = (data for stage in made.plan.stages for data in stage.data)
    assert env.args["prompt"] == "reply"
    assert env.source == data.word == "rows"


def test_a_declaration_may_have_the_name_of_a_grader() -> None:
    text = RECIPE.format(arguments=", grader = exact").replace("sums", "exact")
    made = compile_source(Source("test.rl", text))
    assert made.plan is not None, list(made.diagnostics)
