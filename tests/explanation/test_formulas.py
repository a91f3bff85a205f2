"""Advantage schemes as formulas: those of every preset, and of some arguments and steps."""

from __future__ import annotations

from pathlib import Path

from golden import check_golden
from plan_recipes import first_train, planned, recipe
from stage_parts import flat

from rlc.catalog.index import builtins_of
from rlc.explanation.schemes import scheme_formulas

MORE = (
    "grpo(scale = none, constant = drop, singleton = raw)",
    "grpo(scope = role, constant = drop)",
    "gdpo(scale = none, constant = drop)",
    "rloo(singleton = error)",
    "trl.rloo(normalize = true)",
    "trl.grpo(scale_rewards = batch)",
    "areal.normalize(mean_level = none, unbiased = false)",
    "returns(gamma = 0.5, constant = drop) |> clip(-1, 1)",
    "returns() |> baseline(length_weighted, over = group) |> scale(rms, over = batch)",
    "returns() |> baseline(mean, over = role, singleton = drop) |> weighted_sum()",
)

USAGES = [builtin.usage() for builtin in builtins_of("advantage")]


def test_schemes_print_as_their_formulas() -> None:
    lines = []
    for scheme in (*(one for one in USAGES if one.endswith("()")), *MORE):
        plan = planned(recipe("quickstart"), f"main.advantage={scheme}")
        formulas = scheme_formulas(flat(first_train(plan)).advantage)
        lines += [scheme, *(f"  {one.text}   {one.remark}".rstrip() for one in formulas), ""]
    check_golden(Path(__file__).parent / "golden" / "advantages.txt", "\n".join(lines))
