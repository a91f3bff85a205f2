"""Whether a budget lasts."""

from __future__ import annotations

from collections.abc import Iterable

from rlc.check.stages import CheckedStage
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.tree import TrainPlan


def report_budgets(stages: Iterable[CheckedStage], found: Diagnostics) -> None:
    """Warn where a stage will probably stop at its budget."""
    for stage in stages:
        plan = stage.plan()
        if not isinstance(plan, TrainPlan) or plan.budget.usd is None:
            continue
        from rlc.plan.cost import stage_cost  # most checks need no prices

        cost = stage_cost(plan)
        total, step = cost.total("expected"), cost.step["expected"].total
        if total is None or not step or total <= plan.budget.usd:
            continue
        lasts = int(plan.budget.usd / step)
        message = f"${plan.budget.usd:g} lasts for about {lasts:,} of {plan.steps:,} steps"
        advice = f"all of them are expected to cost ${total:,.2f}; the run stops at the budget"
        found.warning("RL0411", stage.origins.at("budget.usd"), message, advice)
