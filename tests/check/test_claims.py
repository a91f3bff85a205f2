"""Claims: which configurations they name, and what the plan of a sweep keeps of them."""

from __future__ import annotations

import re

import pytest
from paths import ROOT

from rlc.compile.recipe import CompileResult, compile_source
from rlc.explanation import explain_dict, explain_text
from rlc.lang.render import render_human
from rlc.lang.source import Source
from rlc.plan.sweeps import ClaimPlan

RECIPE = """
param rate: float = 1e-4
model policy { base = "Qwen/Qwen3-8B"  lora_rank = 16 }
env sums = gem("rg:simple_equations") |> template(qwen3_general)
env others = gem("rg:decimal_arithmetic") |> template(qwen3_general)
train main {
  model = policy  env = sums  batch = groups(16, group_size = 8)
  sampling = sample(max_tokens = 64)  advantage = grpo()  loss = importance_sampling()
  optimizer = adam(rate)  steps = 20
}
eval held { model = main  env = others  metrics = [pass_at(1), mean_reward()] }
sweep rates {
  of = main  seeds = 4  metric = held.pass_at_1
  over = { rate = [1e-5, 1e-4]  main.advantage = [grpo(), rloo()]  main.steps = [20] }
}
"""
SLOW, FAST = (
    "at(rate == 1e-5, main.advantage == rloo())",
    "at(main.advantage == rloo(), rate == 0.0001)",
)
GRPO = "at(rate == 1e-5, main.advantage == grpo())"


def compiled(*claims: str, more: str = "", text: str = RECIPE) -> CompileResult:
    written = "".join(
        f"claim number_{i} {{ of = rates  that = {one}  {more} }}\n" for i, one in enumerate(claims)
    )
    return compile_source(Source("recipe.rl", text + written))


def claims_of(*claims: str, more: str = "") -> tuple[ClaimPlan, ...]:
    made = compiled(*claims, more=more)
    assert made.plan is not None, render_human(made.diagnostics, color=False)
    return made.sweeps[0].plan.claims


@pytest.mark.parametrize(
    ("written", "factors", "above", "limit"),
    [
        (f"{SLOW} >= {FAST} - 2%", [1, -1], True, -0.02),
        (f"{SLOW} + 2% > {FAST}", [1, -1], True, -0.02),
        (f"{SLOW} < 0.9 * {FAST}", [1, -0.9], False, 0.0),
        (f"2 * ({SLOW} - {FAST}) / 2 <= 500 * rate", [1, -1], False, 0.05),
        (f"({SLOW} + {GRPO}) / 2 > {FAST}", [0.5, 0.5, -1], True, 0.0),
        (f"{SLOW} >= 90%", [1], True, 0.9),
        (f"-{SLOW} - 1 <= -{FAST} - {SLOW} + {GRPO} - 0.9", [1, -1], False, 0.1),
    ],
)
def test_a_claim_is_a_sum_and_its_limit(
    written: str, factors: list[float], above: bool, limit: float
) -> None:
    (claim,) = claims_of(written)
    assert [term.factor for term in claim.terms] == pytest.approx(factors)
    assert claim.above is above
    assert claim.limit == pytest.approx(limit)
    assert (claim.level, claim.early, claim.unit) == (0.95, True, "share")


def test_a_configuration_has_the_values_as_the_sweep_writes_them() -> None:
    """`0.0001` is its `1e-4`, the order of conditions is free, and an axis of one value is said."""
    ((claim,), _) = claims_of(f"{SLOW} >= {FAST} - 2%"), ()
    assert dict(claim.terms[1].configuration) == {
        "rate": "1e-4",
        "main.advantage": "rloo()",
        "main.steps": "20",
    }
    assert list(claim.terms[0].configuration) == ["rate", "main.advantage", "main.steps"]


@pytest.mark.parametrize(
    ("claim", "code", "span"),
    [
        (f"{SLOW}", "RL0880", SLOW),
        (f"{SLOW} * {FAST} > 0", "RL0880", f"{SLOW} * {FAST}"),
        (f"held.pass_at_1 > {FAST}", "RL0880", "held.pass_at_1"),
        ("at(1e-4) > 0.5", "RL0880", "1e-4"),
        ("at(rate > 1e-4) > 0.5", "RL0880", "rate > 1e-4"),
        ("at(rat == 1e-4) > 0.5", "RL0881", "rat"),
        ("at(rate == 2e-4) > 0.5", "RL0881", "2e-4"),
        ("at() > 0.5", "RL0881", "at()"),
        ("at(rate == 1e-4, rate == 1e-5) > 0.5", "RL0881", "rate"),
        (f"{SLOW} > $5", "RL0884", "$5"),
        (f"{SLOW} / 0 > 1", "RL0203", f"{SLOW} / 0"),
        (f"{SLOW} != {FAST}", "RL0885", f"{SLOW} != {FAST}"),
        (f"{SLOW} > {SLOW} - 1%", "RL0885", f"{SLOW} > {SLOW} - 1%"),
        (f"{SLOW} > {FAST} + 1", "RL0885", f"{SLOW} > {FAST} + 1"),
        (f"{SLOW} <= 100%", "RL0885", f"{SLOW} <= 100%"),
        ("0.5 > 0.2", "RL0885", "0.5 > 0.2"),
    ],
)
def test_what_no_run_can_decide_is_said_where_it_stands(claim: str, code: str, span: str) -> None:
    found = [item for item in compiled(claim).diagnostics if item.severity == "error"]
    assert [(item.code, item.span and item.span.text) for item in found] == [(code, span)]


def test_two_claims_may_say_that_two_are_close() -> None:
    close = (f"{SLOW} >= {FAST} - 2%", f"{SLOW} <= {FAST} + 2%")
    assert not list(compiled(*close).diagnostics)
    assert [claim.among for claim in claims_of(*close)] == [2, 2]
    assert [item.code for item in compiled(close[1]).diagnostics] == ["RL0887"]


def test_the_level_and_the_sweep_are_checked_like_any_field() -> None:
    for level, code in (("95", "RL0202"), ("50%", "RL0202"), ("high", "RL0102")):
        found = compiled(f"{SLOW} > {FAST}", more=f"level = {level}").diagnostics
        assert [item.code for item in found] == [code], level
    (unknown,) = compiled(text=RECIPE + f"claim c {{ of = rate_s  that = {SLOW} > 0 }}").diagnostics
    assert (unknown.code, unknown.fix is not None) == ("RL0102", True)
    (stage,) = compiled(text=RECIPE + f"claim c {{ of = main  that = {SLOW} > 0 }}").diagnostics
    assert stage.code == "RL0201"


def test_explain_says_what_a_verdict_takes() -> None:
    made = compiled(f"{SLOW} >= {FAST} - 2%", f"{GRPO} < {SLOW}", more="level = 90%")
    assert made.plan is not None
    text = " ".join(explain_text(made.plan, made.diagnostics, sweeps=made.sweeps).split())
    assert "claims number_0: at(" in text
    assert "compares 8 trials of the sweep; also looked at after 2, 3 seeds" in text
    data = explain_dict(made.plan, "", made.diagnostics, None, made.sweeps)
    assert [claim["name"] for claim in data["sweeps"][0]["claims"]] == ["number_0", "number_1"]


def test_the_page_shows_what_rlc_says() -> None:
    page = (ROOT / "docs" / "claims.md").read_text("utf-8")
    recipe, shown, *_ = re.findall(r"^```(?:rl)?\n(.*?)^```$", page, re.S | re.M)
    made = compile_source(Source("recipe.rl", recipe))
    assert made.plan is not None
    assert not list(made.diagnostics)
    text = explain_text(made.plan, made.diagnostics, sweeps=made.sweeps)
    assert shown.rstrip() in text


def test_the_shelf_is_whole() -> None:
    """Every recipe of published claims can be decided by its sweep, and is on the page."""
    page = (ROOT / "docs" / "claims.md").read_text("utf-8")
    for path in (ROOT / "recipes" / "claims").glob("*.rl"):
        made = compile_source(Source(str(path), path.read_text("utf-8")))
        assert not list(made.diagnostics), path
        (sweep,) = made.sweeps
        assert (len(sweep.plan.claims), sweep.plan.seeds >= 5) == (1, True)
        assert f"`recipes/claims/{path.name}`" in page
