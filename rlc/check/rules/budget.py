"""Whether a budget lasts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rlc.check.stages import CheckedStage
from rlc.lang.diagnostics import Diagnostics
from rlc.plan.records import EvalPlan, SftPlan, TrainPlan


def report_budgets(stages: Iterable[CheckedStage], found: Diagnostics) -> None:
    """Warn of stages that will probably stop at their budget."""
    for stage in stages:
        plan = stage.plan()
        if isinstance(plan, EvalPlan):
            continue
        for unit, lasting, steps, whole in _too_small(plan):
            steps = min(plan.steps, steps)
            message = f"{lasting} for about {steps:,} of {plan.steps:,} steps"
            advice = f"all of them are expected to {whole}; the run stops at the budget"
            found.warning("RL0411", stage.origins.at(f"budget.{unit}"), message, advice)


def _too_small(plan: TrainPlan | SftPlan) -> Iterator[tuple[str, str, int, str]]:
    """The limits that are too small: the unit, how a message begins, for how many steps one lasts,
    what all steps take."""
    if (usd := plan.budget.usd) is not None:
        from rlc.pricing.cost import stage_cost  # most checks need no prices

        cost = stage_cost(plan)
        total, step = cost.total("expected").usd, cost.step["expected"].usd
        if step and total > usd:
            yield "usd", f"${usd:g} lasts", int(usd / step), f"cost ${total:,.2f}"
    if (tokens := plan.budget.tokens) is not None:
        from rlc.pricing.tokens import step_tokens, tokens_before

        each = step_tokens(plan, "expected").total
        total = each * plan.steps + tokens_before(plan, "expected").total
        if total > tokens:
            yield "tokens", f"{tokens:,} tokens last", int(tokens / each), f"take {total:,.0f}"
