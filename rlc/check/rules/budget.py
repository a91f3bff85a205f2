"""Whether a budget lasts."""

from __future__ import annotations

from collections.abc import Iterable

from rlc.check.stages import CheckedStage
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.records import EvalPlan, SftPlan, TrainPlan


def report_budgets(stages: Iterable[CheckedStage], found: Diagnostics) -> None:
    """Warn of stages that will probably stop at their budget."""
    for stage in stages:
        plan = stage.plan()
        if isinstance(plan, EvalPlan):
            continue
        if plan.budget.usd is not None:
            _report_dollars(plan, plan.budget.usd, stage, found)
        if plan.budget.tokens is not None:
            _report_tokens(plan, plan.budget.tokens, stage, found)


def _report_dollars(
    plan: TrainPlan | SftPlan, usd: float, stage: CheckedStage, found: Diagnostics
) -> None:
    from rlc.pricing.cost import stage_cost  # most checks need no prices

    cost = stage_cost(plan)
    total, step = cost.total("expected").usd, cost.step["expected"].usd
    if not step or total <= usd:
        return
    message = (
        f"${usd:g} lasts for about {min(plan.steps, int(usd / step)):,} of {plan.steps:,} steps"
    )
    advice = f"all of them are expected to cost ${total:,.2f}; the run stops at the budget"
    found.warning("RL0411", stage.origins.at("budget.usd"), message, advice)


def _report_tokens(
    plan: TrainPlan | SftPlan, tokens: int, stage: CheckedStage, found: Diagnostics
) -> None:
    from rlc.pricing.tokens import step_tokens, tokens_before

    step = step_tokens(plan, "expected").total
    total = step * plan.steps + tokens_before(plan, "expected").total
    if total <= tokens:
        return
    steps = min(plan.steps, int(tokens / step))
    message = f"{tokens:,} tokens last for about {steps:,} of {plan.steps:,} steps"
    advice = f"all of them are expected to take {total:,.0f}; the run stops at the budget"
    found.warning("RL0411", stage.origins.at("budget.tokens"), message, advice)
