"""The high estimate holds against what a service counts, with the included model as every one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from run_support import plan, run_new

from rlc.compile.variants import rehearse
from rlc.pricing.cost import plan_cost
from rlc.runtime.journal.database import Journal

pytestmark = pytest.mark.plain

# Of the shipped recipes those that run without network, servers and code beside them: reinforcement
# learning, judges, teachers, preferences, samples, several turns, mixtures and evaluations.
RECIPES = [
    *("compared", "curriculum", "distillation", "evaluate_only", "expert_iteration"),
    *("gem_reasoning", "judged", "learning_rates", "likeliest_tokens", "mixture", "online_dpo"),
    *("preferences", "quickstart", "reward_model", "warm_start"),
]


@pytest.mark.parametrize("name", RECIPES)
def test_no_stage_takes_more_than_the_high_estimate(name: str, tmp_path: Path) -> None:
    job = rehearse(plan(name))
    run_new(tmp_path / "run", job)
    journal = Journal(tmp_path / "run" / "journal.sqlite", read_only=True)
    used = Counter({stage.name: journal.used(stage.name).tokens for stage in job.stages})
    journal.close()
    for cost in plan_cost(job):
        assert 0 < used[cost.stage] <= cost.tokens("high"), cost.stage
        assert cost.tokens("low") <= cost.tokens("expected") <= cost.tokens("high")


def test_what_learns_from_files_takes_no_less_than_the_low_estimate(tmp_path: Path) -> None:
    """Roles of messages are markup, and not counted beside it."""
    job = rehearse(plan("preferences"))
    run_new(tmp_path / "run", job)
    journal = Journal(tmp_path / "run" / "journal.sqlite", read_only=True)
    (cost,) = plan_cost(job)
    used = journal.used("align").tokens
    journal.close()
    assert cost.tokens("low") <= used < 1.3 * cost.tokens("expected")
