"""What a recipe wrote before is still read, said to be old, and rewritten on request."""

from __future__ import annotations

import pytest
from stage_parts import flat

from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.source import Source
from rlc.plan.codec import plan_hash
from rlc.plan.records import Plan

NEW = """\
model policy { base = "tiny"  renderer = qwen3_instruct }
env sums = gem("qa:HotpotQA") |> template(no) |> rollouts(group_size = 4)
env test = problems(gsm8k, split = "train", grader = numeric) |> chat()
train main {
  model     = policy
  env       = sums + test
  batch     = groups(16, group_size = 8)
  sampling  = sample(max_tokens = 16)
  advantage = grpo(scale = std)
  loss      = importance_sampling()
  optimizer = adam(1e-3)
  steps     = 5
}
"""
OLD = (
    NEW.replace("qwen3_instruct", '"qwen3_instruct"')
    .replace("template(no)", 'template("no")')
    .replace("problems(gsm8k", 'problems("gsm8k"')
    .replace("rollouts(group_size", "rollouts(group")
    .replace("groups(16, group_size", "groups(16, of")
    .replace("scale = std", 'scale = "std"')
)


def compiled(text: str, *overrides: str) -> tuple[Plan, Diagnostics]:
    made = compile_source(Source("test.rl", text), overrides, seed=1)
    assert made.plan is not None, made.diagnostics
    return made.plan, made.diagnostics


def check(source: Source) -> Diagnostics:
    return compile_source(source).diagnostics


def test_old_spellings_are_warnings_that_mean_the_same() -> None:
    (old, found), (new, nothing) = compiled(OLD), compiled(NEW)
    assert [item.code for item in found] == ["RL0116"] * 6
    assert not found.has_errors
    assert not list(nothing)
    assert plan_hash(old) == plan_hash(new)


def test_the_fix_writes_them_as_they_are_written_now() -> None:
    fixed = fix_all(Source("test.rl", OLD), check)
    assert fixed.source.text == NEW
    assert not list(fixed.remaining)


@pytest.mark.parametrize("name", ["group_size", "of", "group", "size"])
def test_an_override_may_use_either_name(name: str) -> None:
    for text in (OLD, NEW):
        plan, found = compiled(text, f"main.batch.{name}=2")
        assert flat(plan.stages[0]).batch.size == 2
        places = [item.file_name for item in found if item.code == "RL0116"]
        assert (f"--set main.batch.{name}" in places) == (name != "group_size")


def test_both_names_are_one_argument_given_twice() -> None:
    text = NEW.replace("group_size = 8", "group_size = 8, of = 8")
    assert [item.code for item in check(Source("test.rl", text))] == ["RL0116", "RL0111"]


def test_a_string_that_is_open_stays_one() -> None:
    path = NEW.replace("template(no)", 'template("prompt.j2")')
    assert [item.code for item in check(Source("test.rl", path))] == ["RL0001"]  # no such file
    for split in ('"train"', "train"):
        assert not list(check(Source("test.rl", NEW.replace('"train"', split))))


def test_a_param_holds_the_choice_as_a_string() -> None:
    named = 'param how: string = "qwen3"\n' + NEW.replace("qwen3_instruct", "how")
    plan, found = compiled(named)
    assert plan.stages[0].model.renderer == "qwen3"
    assert not list(found)


@pytest.mark.parametrize("written", ["qwen3_instuct", '"qwen3_instuct"'])
def test_a_misspelt_choice_is_corrected_either_way(written: str) -> None:
    text = NEW.replace("qwen3_instruct", written)
    (found,) = check(Source("test.rl", text))
    assert (found.code, found.message) == ("RL0204", f"there is no renderer {shown(written)}")
    assert fix_all(Source("test.rl", text), check).source.text == NEW


def shown(written: str) -> str:
    return written if written.startswith('"') else f"`{written}`"
