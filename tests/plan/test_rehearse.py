"""A rehearsal is the same job, small."""

from __future__ import annotations

import pytest
from plan_recipes import EVERYTHING, RECIPES, planned

from rlc.check.settle import leaves
from rlc.plan.codec import plan_from_dict, plan_to_dict
from rlc.plan.rehearse import MAX_STEPS, MAX_TOKENS, rehearse

TEXTS = [EVERYTHING, *(path.read_text(encoding="utf-8") for path in RECIPES)]


@pytest.mark.parametrize("text", TEXTS)
def test_a_rehearsal_keeps_what_the_job_is_about(text: str) -> None:
    plan = planned(text)
    small = rehearse(plan)
    assert [node.id for node in small.graph.nodes] == [node.id for node in plan.graph.nodes]
    assert small.graph.edges == plan.graph.edges
    for before, after in zip(plan.stages, small.stages, strict=True):
        for part in ("name", "envs", "advantage", "loss", "optimizer", "save", "on_error"):
            assert getattr(after, part) == getattr(before, part)
        assert after.model.base == "tiny"
        assert after.model.service == "local"
        assert after.steps <= MAX_STEPS
        assert after.sampling.max_tokens <= MAX_TOKENS
        assert after.batch.count * after.batch.size <= 16
        assert after.budget_usd is None


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
