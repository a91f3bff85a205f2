"""What a run is charged for, by model, beside what was estimated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

import pytest

from rlc.plan.parts import ModelPlan
from rlc.plan.records import Plan
from rlc.pricing.cost import plan_cost
from rlc.pricing.shapes import LEVELS
from rlc.pricing.tokens import Tokens
from rlc.runtime.journal.database import Meter
from rlc.runtime.records import Usage

# Tokens that are read, sampled and trained on, by stage and model.
Spending = defaultdict[tuple[str, str], defaultdict[str, float]]
_nothing = partial(defaultdict[str, float], float)


def counted(monkeypatch: pytest.MonkeyPatch) -> Spending:
    """Return what runs are charged for from now on."""
    found, add = Spending(_nothing), Meter.add

    def noted(meter: Meter, step: int, usage: Usage) -> None:
        own = found[meter.stage, meter.model.name]
        own["read"] += usage.prefill + usage.cached
        own["sampled"] += usage.sampled
        own["trained"] += usage.trained
        add(meter, step, usage)

    monkeypatch.setattr(Meter, "add", noted)
    return found


def bounds(job: Plan) -> Spending:
    """Return the high estimate of a plan."""
    found = Spending(_nothing)

    def add(stage: str, model: str, tokens: Tokens) -> None:
        own = found[stage, model]
        own["read"] += tokens.prefill + tokens.cached
        own["sampled"] += tokens.sample
        own["trained"] += tokens.train

    for stage, cost in zip(job.stages, plan_cost(job), strict=True):
        own = cost.step_tokens["high"] * cost.times + cost.tokens_before["high"]
        add(stage.name, stage.model.name, own)
        if (objective := stage.policy_gradient) is not None and objective.kl is not None:
            add(stage.name, objective.kl.reference.model.name, Tokens(own.reference))
        for asked in cost.asked["high"]:
            assert isinstance(asked.model, ModelPlan)  # a rehearsal has no endpoints
            add(stage.name, asked.model.name, asked.total(cost.times))
        used = [cost.tokens(level) for level in LEVELS]
        assert used == sorted(used), stage.name
    return found


def assert_bounded(spent: Mapping[tuple[str, str], Mapping[str, float]], job: Plan) -> None:
    """No model takes more tokens of a kind than the high estimate says."""
    most = bounds(job)
    over = {
        (*whose, kind): (number, round(most[whose][kind]))
        for whose, kinds in spent.items()
        for kind, number in kinds.items()
        if number > most[whose][kind]
    }
    assert not over, f"counted, and high: {over}"
    assert spent, "nothing was counted"
