"""Advantage schemes as formulas."""

from __future__ import annotations

import pytest
from plan_recipes import first_train, planned, recipe
from stage_parts import flat

from rlc.catalog.index import builtins_of
from rlc.explanation.schemes import scheme_formulas


def formulas(scheme: str) -> list[str]:
    plan = planned(recipe("quickstart"), f"main.advantage={scheme}")
    return [formula.text for formula in scheme_formulas(flat(first_train(plan)).advantage)]


R = "R = Σ_t r_t"
G = "G_t = r_t + G_(t+1)"
CENTRED = [R, "A = R − mean_group(R)"]
BY_ROLE = [R, "A = R − mean_role(R)"]
LOO = [R, "A = R − mean_(others in group)(R)"]
WHITENED = [
    "A = A − mean_batch(A, each by its tokens)",
    "A = A / √(std_batch(A, each by its tokens)² + 1e-08)",
]
CLAMPED = "A = A / √max(std_batch(A, each by its tokens)², 1e-08)"
MARGIN = [R, "A = R − max_(others in group)(R)", "A = max(A, 0)"]
APART = [
    "R_k = Σ_t r_tk",
    "A_k = R_k − mean_group(R_k)",
    "A_k = A_k / (std_group(A_k) + {})",
    "A = Σ_k w_k A_k",
]
NORMALISED = ["A = A − mean_batch(A)", "A = A / (std_batch(A) + {})"]


def with_eps(lines: list[str], eps: str) -> list[str]:
    return [line.format(eps) for line in lines]


EXPECTED = {
    "gdpo()": with_eps([*APART, *NORMALISED], "1e-06"),
    "gdpo(scale = none, constant = drop)": [
        APART[0],
        "drop groups with max R_k = min R_k for all k",
        *[APART[1], APART[3]],
        *with_eps(NORMALISED, "1e-06"),
    ],
    "verl.gdpo()": [*with_eps(APART, "1e-06"), *WHITENED],
    "trl.gdpo()": with_eps([*APART, *NORMALISED], "0.0001"),
    "grpo()": [*CENTRED, "A = A / (std_group(A) + 1e-06)"],
    "grpo(scope = role, constant = drop)": [
        R,
        "drop roles with max R = min R",
        "A = R − mean_role(R)",
        "A = A / (std_role(A) + 1e-06)",
    ],
    "grpo(scale = none, constant = drop)": [
        R,
        "drop groups with max R = min R",
        "A = R − mean_group(R)",
    ],
    "center()": CENTRED,
    "dr_grpo()": CENTRED,
    "rloo()": LOO,
    "rae()": [R, "A = R − b"],
    "reinforce()": [R, "A = R"],
    "reinforce_pp()": [G, "A = G − mean_batch(G, each by its tokens)", WHITENED[1]],
    "reinforce_pp_baseline()": [*CENTRED, *WHITENED],
    "rebn()": [
        "G_t = r_t + 0.9 G_(t+1)",
        "A = G − mean_batch(G)",
        "A = A / (std_batch(A) + 1e-09)",
    ],
    "opo()": [R, "A = R − Σ_group n R / Σ_group n"],
    "maxrl()": [*CENTRED, "A = A / (mean_group(R) + 1e-06)"],
    "grpo_passk()": [*MARGIN, "A = A / (std_group(R) + 1e-06)"],
    "gpg()": [*CENTRED, "A = A / share_batch(R ≠ 0)"],
    "returns(gamma = 1) |> scale(std, over = env, eps = 0) |> clip(-5, 2.5)": [
        G,
        "A = G / std_env(G)",
        "A = clip(A, -5, 2.5)",
    ],
    "returns() |> scale(rms, over = role, weight = tokens) |> clip(high = 3)": [
        R,
        "A = R / (rms_role(R, each by its tokens) + 1e-06)",
        "A = min(A, 3)",
    ],
    "verl.grpo()": [*CENTRED, "A = A / (std_group(A) + 1e-06)"],
    "verl.rloo()": LOO,
    "verl.rloo_vectorized()": LOO,
    "verl.opo()": [R, "A = R − Σ_group n R / Σ_group n"],
    "verl.reinforce_pp_baseline()": [*CENTRED, *WHITENED],
    "verl.reinforce_pp()": [G, "A = G − mean_batch(G, each by its tokens)", WHITENED[1]],
    "verl.grpo_passk(norm = false)": MARGIN,
    "verl.gpg()": [*CENTRED, "A = A / share_batch(R ≠ 0)"],
    "trl.grpo(scale_rewards = batch)": [*CENTRED, "A = A / (std_batch(R) + 0.0001)"],
    "trl.rloo(normalize = true)": [
        *LOO,
        "A = A − mean_batch(A)",
        "A = A / (std_batch(A) + 0.0001)",
    ],
    "openrlhf.grpo()": [*CENTRED, "A = A / (std_group(A) + 1e-09)"],
    "openrlhf.reinforce_pp_baseline()": [*CENTRED, WHITENED[0], CLAMPED],
    "openrlhf.reinforce_pp()": [R, "A = R − mean_batch(R, each by its tokens)", CLAMPED],
    "openrlhf.flash_reinforce()": [R, "A = R − mean_batch(R)"],
    "rllm.grpo()": [*BY_ROLE, "A = A / (std_role(A) + 1e-06)"],
    "rllm.legacy_grpo()": [*BY_ROLE, "A = A / std_role(A)"],
    "rllm.rloo(scope = group)": LOO,
    "rllm.reinforce_pp_baseline()": [*BY_ROLE, "A = A / (std_batch_role(A) + 1e-06)"],
    "rllm.prpo()": [
        R,
        "A = R − mean_batch_role(R)",
        "A = A / (std_batch_role(A) + 1e-06)",
    ],
    "skyrl.grpo()": [*CENTRED, "A = A / (std_group(A) + 1e-06)"],
    "skyrl.rloo()": LOO,
    "skyrl.maxrl()": [*CENTRED, "A = A / (mean_group(R) + 1e-06)"],
    "nemo.grpo()": [*LOO, "A = A / (std_(others in group)(R) + 1e-06)"],
    "nemo.reinforce_pp()": [*CENTRED, WHITENED[0], CLAMPED],
    "prime.center()": [R, "drop groups with max R = min R", CENTRED[1]],
    "prime.maxrl()": [*CENTRED, "A = A / mean_group(R)"],
    "openreward.centered_normalized()": [
        R,
        "drop groups with max R = min R",
        CENTRED[1],
        "A = A / std_group(A)",
    ],
    "openreward.centered()": [R, "drop groups with max R = min R", CENTRED[1]],
    "openreward.direct()": [R, "drop groups with max R = min R", "A = R"],
    "cookbook.center()": CENTRED,
    "gem.rebn(gamma = 0.5)": [
        "G_t = r_t + 0.5 G_(t+1)",
        "A = G − mean_batch(G)",
        "A = A / (std_batch(A) + 1e-09)",
    ],
    "oat.rebn()": [G, "A = G − mean_batch(G)", "A = A / (std_batch(A) + 1e-09)"],
    "areal.normalize(mean_level = none)": [R, "A = R / (rms_batch(R) + 1e-05)"],
}


@pytest.mark.parametrize("scheme", EXPECTED)
def test_a_scheme_prints_as_its_formulas(scheme: str) -> None:
    assert formulas(scheme) == EXPECTED[scheme]


def test_every_preset_is_printed_here() -> None:
    assert {text.partition("(")[0] for text in EXPECTED} == {
        preset.name for preset in builtins_of("advantage")
    }


REMARKS = {
    "verl.grpo()": [
        "a group of one keeps its value",
        "ddof 1; 0 where all are equal; the deviation of a group of one is 1",
    ],
    "skyrl.maxrl()": [
        "a group of one keeps its value",
        "0 where the mean is not positive; a group of one is not divided",
    ],
    "nemo.grpo()": ["a group of one gets 0", "ddof 1; not divided where the others are equal"],
    "openreward.centered_normalized()": [
        "nothing to compare",
        "a group of one gets 0",
        "ddof 1; 0 where all are equal; 0 where it is at most 1e-08",
    ],
    "center(scope = role)": ["a task's role of one gets 0"],
}


@pytest.mark.parametrize("scheme", REMARKS)
def test_edge_cases_are_told(scheme: str) -> None:
    plan = planned(recipe("quickstart"), f"main.advantage={scheme}")
    lines = scheme_formulas(flat(first_train(plan)).advantage)
    assert [line.remark for line in lines[1:]] == REMARKS[scheme]
