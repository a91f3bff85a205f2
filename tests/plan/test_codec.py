"""Plans as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve
from plan_recipes import EVERYTHING, RECIPE_TEXTS, planned

from rlc.plan.codec import PlanFormatError, plan_from_dict, plan_hash, plan_to_dict

TEXTS = [EVERYTHING, *RECIPE_TEXTS.values()]


@pytest.mark.parametrize("text", TEXTS)
def test_a_plan_survives_json_without_loss(text: str) -> None:
    plan = planned(text)
    again = plan_from_dict(json.loads(json.dumps(plan_to_dict(plan))))
    assert again == plan
    assert again.provenance == plan.provenance
    assert plan_hash(again) == plan_hash(plan)


def test_a_whole_number_where_any_may_stand_is_the_same_in_json() -> None:
    """Equal in Python, but `1` and `1.0` have different hashes."""
    plan = planned(EVERYTHING)
    (stage,) = planned(RECIPE_TEXTS["quickstart"]).trainings
    whole = evolve(plan, stages=(evolve(stage, optimizer=evolve(stage.optimizer, eps=1)),))
    assert repr(plan_to_dict(whole)["stages"][0]["optimizer"]["eps"]) == "1.0"


def test_the_hash_is_of_what_is_done_not_of_how_it_is_written() -> None:
    plan = planned(EVERYTHING)
    moved = planned("\n# a comment\n\n" + EVERYTHING)
    assert moved.provenance != plan.provenance
    assert plan_hash(moved) == plan_hash(plan) == plan_hash(evolve(plan, recipe="other.rl"))
    for changed in (planned(EVERYTHING, "first.steps=11"), planned(EVERYTHING, seed=2)):
        assert plan_hash(changed) != plan_hash(plan)


def changed(**changes: Any) -> dict[str, Any]:
    return plan_to_dict(planned(EVERYTHING)) | changes


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([], "a plan is a JSON object"),
        ({}, "schema_version is None"),
        (changed(schema_version=99), "schema_version is 99"),
        (changed(seed="one"), "plan.seed"),
        (changed(extra=1), "extra"),
        (changed(stages=[{"name": "main"}]), r"plan.stages\[0\]"),
        ({"schema_version": 3}, "recipe"),
    ],
)
def test_what_is_no_plan_is_refused_with_its_place(data: object, words: str) -> None:
    with pytest.raises(PlanFormatError, match=words):
        plan_from_dict(data)
