"""Advantage schemes as formulas."""

from __future__ import annotations

import pytest
from plan_recipes import planned, recipe

from rlc.catalog.advantages import PRESETS
from rlc.plan.formulas import scheme_formulas


def formulas(scheme: str) -> list[str]:
    plan = planned(recipe("quickstart"), f"main.advantage={scheme}")
    return [formula.text for formula in scheme_formulas(plan.stages[0].advantage)]


EXPECTED = {
    "grpo()": ["R = Σ_t r_t", "A = R − mean_group(R)", "A = A / (std_group(A) + 1e-06)"],
    "grpo(scale = none, constant = drop)": [
        "R = Σ_t r_t",
        "drop groups with max R = min R",
        "A = R − mean_group(R)",
    ],
    "dr_grpo()": ["R = Σ_t r_t", "A = R − mean_group(R)"],
    "rloo()": ["R = Σ_t r_t", "A = R − mean_(others in group)(R)"],
    "reinforce()": ["R = Σ_t r_t", "A = R"],
    "rebn()": [
        "G_t = r_t + 0.9 G_(t+1)",
        "A = G − mean_batch(G)",
        "A = A / (std_batch(A) + 1e-09)",
    ],
    "opo()": ["R = Σ_t r_t", "A = R − Σ_group n R / Σ_group n"],
    "reinforce_pp_baseline()": [
        "R = Σ_t r_t",
        "A = R − mean_group(R)",
        "A = A − mean_batch(A, each by its tokens)",
        "A = A / √(std_batch(A, each by its tokens)² + 1e-08)",
    ],
    "maxrl()": ["R = Σ_t r_t", "A = R − mean_group(R)", "A = A / (mean_group(R) + 1e-06)"],
    "returns(gamma = 1) |> scale(std, over = env, eps = 0) |> clip(-5, 2.5)": [
        "G_t = r_t + G_(t+1)",
        "A = G / std_env(G)",
        "A = clip(A, -5, 2.5)",
    ],
}


@pytest.mark.parametrize("scheme", EXPECTED)
def test_a_scheme_prints_as_its_formulas(scheme: str) -> None:
    assert formulas(scheme) == EXPECTED[scheme]


def test_every_preset_is_printed_here() -> None:
    assert {text.partition("(")[0] for text in EXPECTED} == {preset.name for preset in PRESETS}
