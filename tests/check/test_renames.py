"""Fixes for misspelt names: the one nearest name is written, another thing never."""

from __future__ import annotations

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
