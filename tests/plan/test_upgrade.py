"""Plans that older versions wrote are read, and mean the same."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import evolve
from dialect_batches import draw_batch, episodes_of
from paths import RECIPES

from rlc.algo import compute_advantages
from rlc.catalog.plan_files import plan_from_file
from rlc.compile.recipe import load
from rlc.data.reading import Reader
from rlc.plan.codec import PlanFormatError, plan_from_dict
from rlc.plan.graph import build_graph
from rlc.plan.stages import StagePlan

# `rlc explain RECIPE --out` of commit 0962812b, for every recipe that shipped with it.
with gzip.open(Path(__file__).parent / "data" / "schema3.json.gz") as file:
    PLANS: dict[str, dict[str, Any]] = json.load(file)


# What recipes say differently since: the values that they had.
SINCE = {
    **dict.fromkeys(
        ("gem_deepscaler", "gem_math", "gem_python_tool", "gem_reasoning"), ("main.track=[]",)
    ),
    "cookbook_tutorial": ("main.optimizer.learning_rate=4.91e-4",),
    "solver_judge": ("duel.data=countdown", "duel.samples=489_340", "test.data=countdown"),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_of_schema_3_is_what_its_recipe_compiles_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(RECIPES.parent)
    old, intact = plan_from_file(
        {key: value for key, value in PLANS[name].items() if key != "made_from"}, "recipes"
    )
    assert intact, "its hash is that of the document as it stands"
    now = load(f"recipes/{name}.rl", SINCE.get(name, ()), reader=Reader()).plan
    assert now is not None
    assert old.graph == now.graph == build_graph(old.stages)
    stages = tuple(map(with_same_advantage, old.stages, now.stages))
    assert stages == now.stages
    assert evolve(old, provenance={}, stages=stages) == evolve(now, provenance={})


def with_same_advantage(old: StagePlan, now: StagePlan) -> StagePlan:
    """The old stage with the advantage of the new one, which is written otherwise and computes the
    same."""
    before, after = (getattr(stage, "policy_gradient", None) for stage in (old, now))
    if before is None or after is None:
        return old
    draw = random.Random(old.name)
    for batch in (draw_batch(draw) for _ in range(5)):
        found, expected = (
            compute_advantages(one.advantage, episodes_of(batch)) for one in (before, after)
        )
        assert found.kept_R.tolist() == expected.kept_R.tolist()
        np.testing.assert_allclose(
            found.advantages_N, expected.advantages_N, rtol=1e-12, atol=1e-12
        )
    return evolve(old, objective=evolve(before, advantage=after.advantage))


def test_what_is_no_plan_of_schema_3_is_refused() -> None:
    data = json.loads(json.dumps(PLANS["quickstart"]))
    for key in ("plan_hash", "provenance_hash", "paths_start_at", "made_from"):
        data.pop(key, None)
    plan_from_dict(data)
    data["stages"][0]["steps"] = "many"
    with pytest.raises(PlanFormatError, match="steps"):
        plan_from_dict(data)
    for stages in (None, [None], [{"kind": "dance"}], [{"kind": "sft", "data": 3}]):
        with pytest.raises(PlanFormatError):
            plan_from_dict({**data, "stages": stages})
    with pytest.raises(PlanFormatError, match="schema_version is 2"):
        plan_from_dict({**data, "schema_version": 2})
