"""What ``rlc explain`` says of the recipes of the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden import check_golden
from plan_recipes import EVERYTHING, RECIPES, planned

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source
from rlc.plan.codec import plan_from_dict, plan_hash
from rlc.plan.compile import compile_source
from rlc.plan.explain import explain_dict, explain_text
from rlc.plan.rehearse import rehearse

EXPECTED = Path(__file__).with_name("expected")
KEYS = ["schema_version", "plan_hash", "recipe", "stages", "graph", "cost", "diagnostics"]
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in RECIPES}


@pytest.mark.parametrize("name", [*TEXTS, "everything"])
def test_a_plan_is_explained_like_this(name: str) -> None:
    text = TEXTS.get(name, EVERYTHING)
    compiled = compile_source(Source(f"{name}.rl", text))
    assert compiled.plan is not None
    explained = explain_text(compiled.plan, compiled.diagnostics)
    check_golden(EXPECTED / f"{name}.txt", explained)
    assert max(len(line) for line in explained.splitlines()) <= 100


def test_a_rehearsal_is_explained_too() -> None:
    text = explain_text(rehearse(planned(TEXTS["sudoku"])), Diagnostics())
    assert "3 steps on local" in text
    assert "--rehearse" in text


def test_colour_only_adds_escapes() -> None:
    plan = planned(EVERYTHING)
    colored = explain_text(plan, Diagnostics(), color=True)
    for escape in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):
        colored = colored.replace(escape, "")
    assert colored.split() == explain_text(plan, Diagnostics()).split()


def test_json_has_exactly_its_keys_and_the_whole_plan() -> None:
    plan = planned(EVERYTHING)
    data = json.loads(json.dumps(explain_dict(plan, "test.rl", Diagnostics())))
    assert list(data) == KEYS
    assert data["plan_hash"] == plan_hash(plan)
    assert set(data["graph"]) == {"nodes", "edges"}
    for stage, record in zip(plan.stages, data["stages"], strict=True):
        assert record["name"] == stage.name
        assert record["provenance"]["steps"] == plan.provenance[f"stages.{stage.name}.steps"]
        assert record["formulas"]["advantage"][0].startswith("G_t")
    added = {"seed", "formulas", "provenance"}
    stages = [{k: v for k, v in s.items() if k not in added} for s in data["stages"]]
    again = {"recipe": plan.recipe, "seed": plan.seed, "schema_version": 1, "provenance": {}}
    assert plan_from_dict(again | {"stages": stages, "graph": data["graph"]}) == plan


def test_json_of_a_recipe_with_errors_has_the_same_keys() -> None:
    compiled = compile_source(Source("bad.rl", "train main {}\n"))
    data = explain_dict(compiled.plan, "bad.rl", compiled.diagnostics)
    assert list(data) == KEYS
    assert data["plan_hash"] is None
    assert data["diagnostics"][0]["code"] == "RL0302"
