"""Whatever is wrong with a recipe, it is a diagnostic with a place, never a crash."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from page_examples import complete
from paths import RECIPES
from stage_parts import flat

from rlc.compile.recipe import CompileResult, compile_source
from rlc.explanation import explain_text
from rlc.lang.diagnostics import Diagnostics, Severity
from rlc.lang.fixes import fix_all
from rlc.lang.render import render_human
from rlc.lang.source import Source

CASES = Path(__file__).with_name("cases")
TEXTS = [
    path.read_text(encoding="utf-8")
    for folder in (RECIPES, CASES)
    for path in sorted(folder.glob("*.rl"))
]
WORDS = re.compile(r'"[^"\n]*"|\w+|\|>|[^\w\s]|\s+|#[^\n]*')
VOCABULARY = sorted({word for text in TEXTS for word in WORDS.findall(text) if word.strip()})


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A recipe with a few words exchanged, dropped, doubled or without a letter."""
    words = WORDS.findall(draw(st.sampled_from(TEXTS)))
    for _ in range(draw(st.integers(1, 4))):
        index = draw(st.integers(0, len(words) - 1))
        change = draw(st.sampled_from(["replace", "drop", "double", "cut"]))
        if change == "replace":
            words[index] = draw(st.sampled_from(VOCABULARY))
        elif change == "cut":  # one letter, which may be a quote
            place = draw(st.integers(0, max(0, len(words[index]) - 1)))
            words[index] = words[index][:place] + words[index][place + 1 :]
        else:
            words[index] = "" if change == "drop" else words[index] * 2
    return "".join(words)


@given(damaged())
@settings(deadline=None, derandomize=True, max_examples=50)
def test_any_recipe_gives_a_plan_or_errors(text: str) -> None:
    compiled = compile_source(Source("test.rl", text))
    nothing_to_run = any(item.code == "RL0301" for item in compiled.diagnostics)
    assert (compiled.plan is None) == (compiled.diagnostics.has_errors or nothing_to_run)
    assert all(item.span is not None for item in compiled.diagnostics)
    render_human(compiled.diagnostics, color=False)
    if compiled.plan is not None:
        explain_text(compiled.plan, compiled.diagnostics)


@given(damaged())
@settings(deadline=None, derandomize=True, max_examples=40)
def test_fixes_make_nothing_worse_and_come_to_an_end(text: str) -> None:
    """Fixed, a recipe has no more errors than before, and to fix it again changes nothing."""

    def check(source: Source) -> Diagnostics:
        return compile_source(source).diagnostics

    def errors(found: Diagnostics) -> int:
        return sum(item.severity is Severity.ERROR for item in found)

    source = Source("test.rl", text)
    fixed = fix_all(source, check)
    assert errors(fixed.remaining) <= errors(check(source))
    assert fix_all(fixed.source, check).source.text == fixed.source.text


@given(
    st.sampled_from(["rate", "main.steps", "main.batch", "policy.base", "main.env.x"]), st.text()
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_any_override_gives_a_plan_or_errors(name: str, value: str) -> None:
    source = Source("test.rl", TEXTS[1])
    compiled = compile_source(source, [f"{name}={value}"])
    assert (compiled.plan is None) == compiled.diagnostics.has_errors
    render_human(compiled.diagnostics, color=False)


GUESS = 'env x0 = gem("game:GuessTheNumber-v0-easy") |> chat()\n'


def checked(text: str) -> CompileResult:
    source = Source("test.rl", complete(text + "train main {\n  …\n}\n"))
    return compile_source(source)


def test_a_sum_of_sums_is_as_large_as_what_it_names() -> None:
    sums = "".join(f"env x{i + 1} = 2 * x{i} + x{i}\n" for i in range(40))
    compiled = checked(f"{GUESS}{sums}env guess = x40\n")
    assert compiled.plan is not None
    (stage,) = compiled.plan.stages
    assert [(env.name, env.weight) for env in flat(stage).envs] == [("guess", 3.0**40)]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ("".join(f"env x{i + 1} = x{i} + x{i}\n" for i in range(1_100)), "RL0203"),
        (
            "".join(f"param a{i} = a{i + 1} + 1\n" for i in range(900)) + "param a900 = 1\n",
            "RL0016",
        ),
        (
            "param a0 = [1]\n" + "".join(f"param a{i + 1} = [a{i}, a{i}]\n" for i in range(60)),
            "RL0016",
        ),
        (
            "param a0 = [1]\n" + "".join(f"param a{i + 1} = {{ x = a{i} }}\n" for i in range(900)),
            "RL0016",
        ),
    ],
    ids=["weights", "order", "doubling", "depth"],
)
def test_what_grows_without_bound_is_an_error(lines: str, code: str) -> None:
    start = time.process_time()
    found = checked(f"{GUESS}{lines}").diagnostics
    assert {item.code for item in found if item.severity is Severity.ERROR} == {code}
    assert time.process_time() - start < 5


def test_a_block_is_no_stage_of_a_pipeline() -> None:
    (found,) = checked(f"{GUESS}env guess = x0 |> chat {{ x = 1 }}\n").diagnostics
    assert found.message == "a stage after `|>` is a call, found an amended block"


def test_a_limit_of_failures_needs_no_batch_that_can_be_read() -> None:
    text = (CASES / "RL0328.rl").read_text(encoding="utf-8").replace("groups(16", "grups(16")
    found = compile_source(Source("test.rl", text)).diagnostics
    assert [item.code for item in found if item.severity is Severity.ERROR].count("RL0103") == 3
