"""What a run is charged for, by model, beside what was estimated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rlc.plan.parts import ModelPlan
from rlc.plan.records import Plan
from rlc.pricing.cost import plan_cost
from rlc.pricing.shapes import LEVELS
from rlc.pricing.tokens import Tokens
from rlc.runtime.journal.database import Meter
from rlc.runtime.records import Usage

# Tokens by stage, model and kind: read, sampled, trained on.
Spending = defaultdict[tuple[str, str, str], float]


@contextmanager
def bounded(job: Plan) -> Iterator[None]:
    """Until the block ends, no model takes more tokens of a kind than the high estimate says."""
    spent, add = Spending(float), Meter.add

    def noted(meter: Meter, step: int, usage: Usage) -> None:
        whose = meter.stage, meter.model.name
        spent[*whose, "read"] += usage.prefill + usage.cached
        spent[*whose, "sampled"] += usage.sampled
        spent[*whose, "trained"] += usage.trained
        add(meter, step, usage)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Meter, "add", noted)
        yield
    most = bounds(job)
    over = {key: (number, round(most[key])) for key, number in spent.items() if number > most[key]}
    assert not over, f"counted, and high: {over}"
    assert spent, "nothing was counted"


def bounds(job: Plan) -> Spending:
    """Return the high estimate of a plan."""
    found = Spending(float)

    def add(stage: str, model: str, tokens: Tokens) -> None:
        found[stage, model, "read"] += tokens.prefill + tokens.cached
        found[stage, model, "sampled"] += tokens.sample
        found[stage, model, "trained"] += tokens.train

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
