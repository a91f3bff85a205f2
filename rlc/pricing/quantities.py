"""What can be said of a job before it runs, as `expect` names it: cost, tokens, sizes, values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from rlc.catalog import located_stages
from rlc.plan import (
    Evaluation,
    ExpectationPlan,
    ExpectationResult,
    FromData,
    Plan,
    QuantityPlan,
    Rollouts,
    StagePlan,
    Table,
    Training,
    Unit,
)
from rlc.plan.leaves import leaves
from rlc.pricing.cost import StageCost, stage_cost, total_cost
from rlc.pricing.texts import LEVELS, Level
from rlc.pricing.tokens import shares
from rlc.records import define, frozen

JOB = "job"  # stands for all stages together, where no stage has that name


@frozen(eq=False)
class Estimate:
    """A number that follows from a plan. ``of`` takes the costs of the stages that it is of, and
    these; it returns None if the number is not known."""

    unit: Unit
    of: Callable[[Sequence[StageCost], Sequence[StagePlan]], float | None]


def _cost(level: Level) -> Estimate:
    return Estimate("money", lambda costs, _: total_cost(costs, level).total)


def _tokens(level: Level) -> Estimate:
    return Estimate("number", lambda costs, _: sum(cost.tokens(level) for cost in costs))


def _played(with_members: bool) -> Estimate:
    """Tasks that are played, or episodes, failures and replacements aside; None if turns are
    counted."""
    return Estimate(
        "number",
        lambda costs, stages: _summed([_PLAYED[s](s, with_members) for s in stages], costs),
    )


def _summed(each: Sequence[float | None], costs: Sequence[StageCost]) -> float | None:
    total = 0.0
    for one, cost in zip(each, costs, strict=True):
        if one is None:
            return None
        total += cost.times * one
    return total


def _in_step(stage: Training, with_members: bool) -> float | None:
    rollouts = stage.of(Rollouts)
    if rollouts.batch.kind != "groups":
        return None
    part = shares(rollouts.envs)
    size = sum(part[env.name] * env.rollouts.group for env in rollouts.envs)
    return rollouts.batch.count * (size if with_members else 1)


def _in_evaluation(stage: Evaluation, with_members: bool) -> float:
    return stage.tasks * (stage.samples if with_members else 1)


# The tasks of a step, or of an evaluation, or all their members; None if turns are counted.
_PLAYED: Table[Callable[..., float | None]] = Table(
    {Rollouts: _in_step, FromData: lambda *_: 0.0, Evaluation: _in_evaluation}, by="source"
)


ESTIMATES: Mapping[str, Estimate] = {
    **{f"cost.{level}": _cost(level) for level in LEVELS},
    **{f"tokens.{level}": _tokens(level) for level in LEVELS},
    "rollouts": _played(with_members=True),
    "prompts": _played(with_members=False),
}


def values_of(stage: StagePlan) -> dict[str, Any]:
    """The values of a stage's plan, by their paths in it."""
    return {path.partition(".")[2]: value for path, value in leaves(stage, stage.name)}


@define(eq=False)
class EstimatedQuantities:
    """Finds the numbers of a job that are known before it runs. Files are read where its paths say,
    from the folder of its ``recipe``."""

    stages: tuple[StagePlan, ...]
    recipe: str

    @cached_property
    def costs(self) -> tuple[StageCost, ...]:
        located = located_stages(self.stages, self.recipe)
        by_name = {stage.name: stage for stage in located}
        return tuple(stage_cost(stage, by_name) for stage in located)

    def value(self, quantity: QuantityPlan) -> float | None:
        """A number; None if it is not known."""
        if quantity.kind == "value":
            (stage,) = (stage for stage in self.stages if stage.name == quantity.stage)
            found = values_of(stage).get(quantity.key)
            return None if found is None else float(found)
        pairs = self._of(quantity)
        return ESTIMATES[quantity.key].of([c for c, _ in pairs], [s for _, s in pairs])

    def parts(self, quantity: QuantityPlan) -> dict[str, float]:
        """What a cost or a number of tokens is made of, by kind, as far as it is known."""
        what, _, of = quantity.key.partition(".")
        level = next((level for level in LEVELS if level == of), None)
        found: defaultdict[str, float] = defaultdict(float)
        for cost, _ in self._of(quantity) if level else ():
            assert level is not None
            numbers = {kind: money.usd for kind, money in cost.bill[level].items()}
            if what == "tokens":
                numbers = cost.parts(level)
            for kind, number in numbers.items():
                found[kind] += number
        return {kind: number for kind, number in found.items() if number}

    def _of(self, quantity: QuantityPlan) -> list[tuple[StageCost, StagePlan]]:
        pairs = zip(self.costs, self.stages, strict=True)
        return [pair for pair in pairs if quantity.stage in (None, pair[1].name)]


def judged_before(plan: Plan) -> Iterator[tuple[ExpectationPlan, ExpectationResult]]:
    """Judge the expectations of a plan that are known before it runs."""
    estimated = EstimatedQuantities(plan.stages, plan.recipe)
    for one in plan.expectations:
        if not one.after:
            yield one, one.judged(estimated.value)
