"""The rules see plans too: one that was changed in Python is refused as its recipe would be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from paths import RECIPES
from run_support import compiled, tiny, train
from stage_parts import flat

import rlc
from rlc.check.rules import check_plan
from rlc.compile.variants import rehearse
from rlc.plan.leaves import evolved
from rlc.plan.parts import AggregatePlan, OverlapPlan
from rlc.plan.records import Plan
from rlc.plan.stages import Training

ALL = sorted(path.stem for path in RECIPES.glob("*.rl"))


def changed(plan: Plan, **parts: Any) -> Plan:
    """The plan with other parts of its only stage."""
    (stage,) = plan.stages
    return evolve(plan, stages=(evolved(stage, parts),))


@pytest.mark.parametrize("name", ALL)
def test_plans_of_recipes_are_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(RECIPES.parent)
    plan = rlc.load(f"recipes/{name}.rl").plan()
    assert not check_plan(plan).has_errors
    assert not check_plan(rehearse(plan)).has_errors


@pytest.mark.parametrize(
    ("chat", "expected"), [("chat(history = sampled)", []), ("chat()", ["RL0405"])]
)
def test_a_plan_knows_what_its_recipe_has_said(chat: str, expected: list[str]) -> None:
    """So that a resumed run is not warned of what the recipe decided."""
    model = 'model policy { base = "tiny"  renderer = qwen3 }\n'
    env = f'env guess = gem("game:GuessTheNumber-v0-easy") |> {chat}\n'
    assert [item.code for item in check_plan(compiled(model + env + train()))] == expected


def test_a_plan_that_was_changed_does_not_run(tmp_path: Path) -> None:
    plan = changed(
        tiny(train(loss="dro(beta = 0.5)")), aggregate=AggregatePlan("prompt_mean", None)
    )
    with pytest.raises(rlc.RecipeError, match=r"^error\[RL0314\]: "):
        rlc.run(plan, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_plan_runs_on_the_graph_of_its_stages_only(tmp_path: Path) -> None:
    plan = changed(tiny(train()), overlap=OverlapPlan("streamed", 2, 0))
    with pytest.raises(rlc.Error, match=r"^the job graph is not that of the stages"):
        rlc.run(plan, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_nobody_has_declared_is_named(tmp_path: Path) -> None:
    plan = tiny(train())
    (stage,) = plan.stages
    assert isinstance(stage, Training)
    envs = tuple(evolve(env, source="abacus") for env in flat(stage).envs)
    with pytest.raises(rlc.Error, match=r"^there is no environment source `abacus\(\)`$"):
        rlc.run(changed(plan, envs=envs), run_dir=tmp_path / "run")
