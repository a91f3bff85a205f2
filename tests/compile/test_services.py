"""``--service`` moves a plan, and says so."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from rlc.compile.recipe import compile_source, load
from rlc.compile.variants import ServiceMismatchError, on_service
from rlc.lang.source import Source
from rlc.plan.records import Plan

RECIPE = """
model policy {{ base = "{base}" }}
env sums = gem("rg:simple_equations") |> template(qwen3_general)
train main {{
  model = policy  env = sums  batch = groups(2)  sampling = sample(max_tokens = 16)
  advantage = grpo()  loss = importance_sampling()  optimizer = adam(1e-4)  steps = 1
}}
"""


def plan_on(base: str) -> Plan:
    compiled = compile_source(Source("r.rl", RECIPE.format(base=base)))
    assert compiled.plan is not None
    return compiled.plan


def test_a_model_of_this_machine_can_be_trained_through_a_server() -> None:
    plan = on_service(plan_on("tiny"), "tinker")
    assert plan.stages[0].model.service == "tinker"
    assert plan.provenance["stages.main.model.service"] == "--service"


def test_the_embedded_engine_has_no_hosted_models() -> None:
    with pytest.raises(ServiceMismatchError, match="not on this machine"):
        on_service(plan_on("Qwen/Qwen3-8B"), "local")


def test_expectations_and_budgets_are_judged_where_the_job_runs() -> None:
    text = RECIPE.format(base="Qwen/Qwen3.5-4B").replace(
        "steps = 1", "budget = limit(usd = $0.0001)"
    )
    text = text.replace("loss =", "steps = 9  loss =") + "expect main.cost.high == $0\n"

    def found(service: str | None) -> set[str]:
        compiled = compile_source(Source("r.rl", text), service=service)
        return {one.code for one in compiled.diagnostics if one.severity == "error"}

    assert found(None) == found("tinker") == {"RL0460", "RL0674"}
    assert not found("skyrl")  # which bills nothing


def test_a_state_of_another_service_is_named_with_its_service(tmp_path: Path) -> None:
    text = RECIPE.replace("{{ base", '{{ weights = "tinker://run/weights/name"  base')
    recipe = tmp_path / "r.rl"
    recipe.write_text(text.format(base="Qwen/Qwen3.5-4B"))
    with pytest.raises(ServiceMismatchError, match="is on the service `tinker`, and not on `toge"):
        load(recipe, service="together")


def test_what_a_service_changes_of_a_model_is_said_to_be_of_the_option(tmp_path: Path) -> None:
    folder = tmp_path / ".rlc" / "providers"
    folder.mkdir(parents=True)
    small = {"models": {"Qwen/Qwen3.5-4B": {"context": 2048}}, "url": "http://127.0.0.1:1"}
    (folder / "small.json").write_text(json.dumps(small))
    recipe = tmp_path / "r.rl"
    recipe.write_text(RECIPE.format(base="Qwen/Qwen3.5-4B"))
    with contextlib.chdir(tmp_path):
        plan = load(recipe, service="small").plan
    assert plan is not None
    assert plan.stages[0].model.context == 2048
    assert plan.provenance["stages.main.model.context"] == "--service"
