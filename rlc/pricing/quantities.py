"""The numbers of a job that are known before it runs, as `expect` names them."""

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
from rlc.pricing.cost import StageCost, stage_costs, total_cost
from rlc.pricing.shapes import LEVELS, Level, endless
from rlc.pricing.tokens import shares
from rlc.records import define, frozen

JOB = "job"  # stands for all stages together, where no stage has that name


@frozen(eq=False)
class Estimate:
    """A number that follows from a plan. ``of`` takes the costs of its stages, the stages and the
    recipe, and returns None if the number is not known, infinity if nothing limits it."""

    unit: Unit
    of: Callable[[Sequence[StageCost], Sequence[StagePlan], str], float | None]


def _cost(level: Level) -> Estimate:
    def total(costs: Sequence[StageCost], *_: object) -> float | None:
        money = total_cost(costs, level)
        return money.usd if money.complete or money.at_least is None else None

    return Estimate("money", total)


def _tokens(level: Level) -> Estimate:
    return Estimate("number", lambda costs, *_: sum(cost.tokens(level) for cost in costs))


def _played(with_members: bool) -> Estimate:
    """Return tasks that are played, or episodes, without failures and replacements; None if turns
    are counted."""

    def total(costs: Sequence[StageCost], stages: Sequence[StagePlan], _: str) -> float | None:
        total = 0.0
        for cost, stage in zip(costs, stages, strict=True):
            if (played := _PLAYED[stage](stage, with_members)) is None:
                return None
            total += cost.times * played
        return total

    return Estimate("number", total)


def _found_by_audits(
    _: Sequence[StageCost], stages: Sequence[StagePlan], recipe: str
) -> float | None:
    """Return how many findings the audits of the environments have; None if one is not audited."""
    from rlc.catalog import audited  # few recipes expect this, and it reads their code

    envs = {env.name: env for stage in stages for env in stage.environments}
    found = [*audited(envs.values(), recipe).values()]
    return None if None in found else float(sum(filter(None, found)))


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
    "audit.findings": Estimate("number", _found_by_audits),
}


def values_of(stage: StagePlan) -> dict[str, Any]:
    """Return the values of a stage's plan, by their paths in it."""
    return {path.partition(".")[2]: value for path, value in leaves(stage, stage.name)}


@define(eq=False)
class EstimatedQuantities:
    """Finds the numbers of a job that are known before it runs. Files are read where its paths say,
    from the folder of its ``recipe``."""

    stages: tuple[StagePlan, ...]
    recipe: str

    @cached_property
    def costs(self) -> tuple[StageCost, ...]:
        return stage_costs(located_stages(self.stages, self.recipe))

    def value(self, quantity: QuantityPlan) -> float | None:
        """Return a number; None if it is not known."""
        if quantity.kind == "value":
            (stage,) = (stage for stage in self.stages if stage.name == quantity.stage)
            found = values_of(stage).get(quantity.key)
            return None if found is None else float(found)
        pairs = self._of(quantity)
        costs, stages = [c for c, _ in pairs], [s for _, s in pairs]
        return ESTIMATES[quantity.key].of(costs, stages, self.recipe)

    def endless(self, quantity: QuantityPlan) -> list[str]:
        """Return the environments that nothing limits, for which a number has no bound."""
        return endless(stage for _, stage in self._of(quantity))

    def parts(self, quantity: QuantityPlan) -> dict[str, float]:
        """Return the parts of a cost or of a number of tokens, by kind, as far as it is known."""
        what, _, of = quantity.key.partition(".")
        found: defaultdict[str, float] = defaultdict(float)
        for level in LEVELS:
            for cost, _ in self._of(quantity) if level == of else ():
                numbers = {kind: money.usd for kind, money in cost.bill[level].items()}
                for kind, number in (cost.parts(level) if what == "tokens" else numbers).items():
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
