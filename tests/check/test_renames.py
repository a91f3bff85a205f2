"""Fixes for misspelt names: the one nearest name is written, another thing never."""

from __future__ import annotations

from pathlib import Path

import pytest
from paths import RECIPES

from rlc.compile.recipe import compile_source
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.fixes import fix_all
from rlc.lang.source import Source

CLEAN = (RECIPES / "quickstart.rl").read_text(encoding="utf-8")


def check(source: Source) -> Diagnostics:
    return compile_source(source).diagnostics


def fixed(text: str) -> str:
    return fix_all(Source("test.rl", text), check).source.text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("train main", "trian main"),
        ("lora_rank = 8", "lora_rnk  = 8"),
        ("steps     = 50", "stpes     = 50"),
        ("= policy", "= polciy"),
        ("= guess\n", "= gess\n"),
        ("adam(learning_rate)", "adam(learning_rte)"),
        ("max_tokens = 16", "max_token = 16"),
        ("importance_sampling()", "importance_samplin()"),
        ('"game:GuessTheNumber-v0-easy"', '"game:GuessTheNumber-v0-eazy"'),
        ('"tiny"', '"Tiny"'),
    ],
)
def test_a_slip_in_a_name_is_undone(before: str, after: str) -> None:
    assert before in CLEAN
    changed = CLEAN.replace(before, after, 1)
    restored = fixed(changed)
    assert restored.replace(" ", "") == CLEAN.replace(" ", "")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("= guess\n", "= guess2\n"),  # a digit more may be another thing
        ("= policy", "= teacher"),  # nothing is near
        (
            "groups(16, group_size = 8)",
            "groups(16, group_size = 8, off = 8)",
        ),  # `of` is there already
        ("importance_sampling()", "grpo()"),  # known, only not here
    ],
)
def test_what_may_be_another_thing_is_left_to_its_author(before: str, after: str) -> None:
    assert before in CLEAN
    changed = CLEAN.replace(before, after, 1)
    assert fixed(changed) == changed


def test_a_reference_to_a_param_is_not_replaced_by_a_value() -> None:
    text = 'param which: string = "tinny"\n' + CLEAN.replace('"tiny"', "which")
    assert "base      = which" in fixed(text)


def test_a_file_with_nearly_that_name_is_proposed(tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "Say one."}\n')
    text = CLEAN.replace('gem("game:GuessTheNumber-v0-easy") |> chat()', 'rows("%s.jsonl")')
    for name, advice in (("promts", "did you mean `prompts.jsonl`, in"), ("x", "a path starts at")):
        found = check(Source(str(tmp_path / "a.rl"), text.replace("%s", name)))
        assert advice in next(one.help or "" for one in found if one.code == "RL0001")


def test_a_declaration_inside_a_stage_is_sent_out_of_it() -> None:
    for field, written in (("expect", "expect main.cost.high < $20"), ("eval", "eval name { … }")):
        found = check(Source("a.rl", CLEAN.replace("steps     =", f"{field} = 1  steps =")))
        (advice,) = (one.help for one in found if one.code == "RL0104")
        assert advice == f"it is a declaration of its own, beside this one: `{written}`"
