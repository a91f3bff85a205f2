"""Whether a budget lasts: for a step, and for all steps with the evaluations of the stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlc.check.stages import CheckedStage
from rlc.lang import Diagnostics
from rlc.plan import Evaluation, StagePlan, Training, evaluations_of, is_training
from rlc.records import frozen


@frozen
class _Limit:
    """A limit of a budget, and what is expected to count against it."""

    unit: str
    most: float
    least_step: float  # of one step, at the very least
    step: float  # of one step, with its share of the evaluations
    whole: float
    spec: str  # how an amount is written

    def said(self, amount: float) -> str:
        return self.spec.format(amount)


def report_budgets(stages: Sequence[CheckedStage], recipe: str, found: Diagnostics) -> None:
    """Refuse budgets that are too small for a step, and warn of those that will not last."""
    plans: tuple[StagePlan, ...] = tuple(stage.plan() for stage in stages)
    if not any(_is_limited(plan) for plan in plans):
        return  # most have no budget, and their files need not be measured
    from rlc.catalog import located_stages

    plans = located_stages(plans, recipe)
    for stage, plan in zip(stages, plans, strict=True):
        if not is_training(plan) or not _is_limited(plan):
            continue
        evaluations = evaluations_of(plan, plans)
        for limit in _limits(plan, evaluations, plans):
            span = stage.origins.at(f"budget.{limit.unit}")
            most, whole = limit.said(limit.most), limit.said(limit.whole)
            if limit.least_step > limit.most:
                found.error(
                    "RL0460",
                    span,
                    f"a budget of {most} is less than one step takes",
                    f"a step takes at least {limit.said(limit.least_step)}, and a run cannot stop "
                    f"within it; all {plan.steps:,} steps are expected to take {whole}",
                )
            elif limit.whole > limit.most:
                steps = int(limit.most / limit.step)
                lasting = f"will do for about {steps:,} of {plan.steps:,} steps"
                found.warning(
                    "RL0411",
                    span,
                    f"a budget of {most} {lasting if steps else 'may not do for one step'}",
                    f"all of them are expected to take {whole}"
                    + ", evaluations included" * bool(evaluations)
                    + "; the run stops at the budget",
                )


def _is_limited(plan: StagePlan) -> bool:
    budget = plan.budget if is_training(plan) else None
    return budget is not None and not (budget.usd is None and budget.tokens is None)


def _limits(
    plan: Training, evaluations: Sequence[Evaluation], plans: Sequence[StagePlan]
) -> Iterator[_Limit]:
    """The limits of a stage's budget, which its evaluations share."""
    from rlc.pricing import stage_cost  # most checks need no prices

    by_name = {other.name: other for other in plans}
    cost = stage_cost(plan)
    evaluated = [stage_cost(other, by_name) for other in evaluations]
    if (usd := plan.budget.usd) is not None:
        whole = sum(part.total("expected").usd for part in (cost, *evaluated))
        least = cost.step["low"].usd
        yield _Limit("usd", usd, least, whole / plan.steps, whole, "${:,.2f}")
    if (tokens := plan.budget.tokens) is not None:
        whole = sum(part.tokens("expected") for part in (cost, *evaluated))
        least = cost.step_tokens["low"].total
        yield _Limit("tokens", tokens, least, whole / plan.steps, whole, "{:,.0f} tokens")
