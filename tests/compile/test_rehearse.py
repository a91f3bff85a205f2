"""A rehearsal is the same job, small."""

from __future__ import annotations

from typing import Any

import pytest
from attrs import evolve
from plan_recipes import EVERYTHING, RECIPE_TEXTS, planned

from rlc.catalog.environments import env_facts
from rlc.compile.variants import MAX_STEPS, MAX_TOKENS, chosen_stages, only, rehearse
from rlc.errors import Error
from rlc.plan.codec import plan_from_dict, plan_to_dict
from rlc.plan.environments import EnvPlan
from rlc.plan.graph import build_graph
from rlc.plan.leaves import children_of, leaves, with_each
from rlc.plan.parts import BudgetPlan, ModelState
from rlc.plan.stages import Evaluation, Training

ANY_MODEL: Any = None
TEXTS = [EVERYTHING, *RECIPE_TEXTS.values()]


KEPT = (
    "name",
    "after",
    "advantage",
    "aggregate",
    "loss",
    "optimizer",
    "overlap",
    "on_error",
    "metrics",
    "first",
)


@pytest.mark.parametrize("text", TEXTS)
def test_a_rehearsal_keeps_what_the_job_is_about(text: str) -> None:
    plan = planned(text)
    small = rehearse(plan)
    assert [node.id for node in small.graph.nodes] == [node.id for node in plan.graph.nodes]
    assert small.graph.edges == plan.graph.edges
    for before, after in zip(plan.stages, small.stages, strict=True):
        old, new = children_of(before) or {}, children_of(after) or {}
        for part in KEPT:
            assert new.get(part) == old.get(part)
        if not isinstance(before, Evaluation):
            assert not isinstance(after, Evaluation)
            assert evolve(after.save, every=before.save.every) == before.save
            assert after.save.every is None or after.save.every <= after.steps
        for large, few in zip(before.environments, after.environments, strict=True):
            made_here = evolve(large, id=env_facts(large).stand_in or large.id)
            assert _bare(evolve(few, rollouts=large.rollouts)) == _bare(made_here)
            assert few.rollouts.max_tokens <= MAX_TOKENS


def _bare(env: EnvPlan) -> Any:
    """An environment without its judges and the models that are asked, which are rehearsed too."""
    return with_each(ModelState, evolve(env, judging=()), lambda s: evolve(s, model=ANY_MODEL))


@pytest.mark.parametrize("text", TEXTS)
def test_a_rehearsal_is_small_and_local(text: str) -> None:
    for stage in rehearse(planned(text)).stages:
        assert (stage.model.base, stage.model.service) == ("tiny", "local")
        if isinstance(stage, Training):
            assert stage.steps <= MAX_STEPS
        if (rollouts := stage.rollouts) is not None:
            assert rollouts.batch.count * max(e.rollouts.group for e in rollouts.envs) <= 16
        if not isinstance(stage, Evaluation):
            assert stage.budget == BudgetPlan(None, None, None)
            assert stage.track == ()


@pytest.mark.parametrize("text", TEXTS)
def test_what_a_rehearsal_changes_says_so(text: str) -> None:
    plan = planned(text)
    small = rehearse(plan)
    assert set(small.provenance) == set(plan.provenance)
    for before, after in zip(plan.stages, small.stages, strict=True):
        path = f"stages.{before.name}"
        old = dict(leaves(before, path))
        for name, value in leaves(after, path):
            assert (small.provenance[name] == "--rehearse") == (value != old[name])


def test_a_rehearsal_of_a_rehearsal_is_itself() -> None:
    small = rehearse(planned(EVERYTHING))
    assert rehearse(small) == small
    assert plan_from_dict(plan_to_dict(small)) == small


def test_stages_are_chosen_with_those_that_they_need() -> None:
    expected = "expect untrained.pass_at_1 >= 1%\nexpect main.cost.high > $1\n"
    plan = planned(RECIPE_TEXTS["solver_judge"] + expected)
    alone = only(plan, ["untrained"])
    assert [stage.name for stage in alone.stages] == ["untrained"]
    assert alone.graph == build_graph(alone.stages)
    assert [one.quantity.path for one in alone.expectations] == ["untrained.pass_at_1"]
    assert only(plan, ["heldout"]).stages == plan.stages[1:]  # and what it needs
    assert chosen_stages(plan, [], "main") == ["main", "heldout"]
    with pytest.raises(Error, match="no stage `held`"):
        chosen_stages(plan, ["held"])
