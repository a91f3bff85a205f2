"""Dollars of a sweep: all its trials together, before any of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rlc.catalog import located_stages
from rlc.plan import StagePlan, SweepPlan
from rlc.plan.leaves import children_of, evolved
from rlc.pricing.cost import Money, stage_cost, total_cost
from rlc.pricing.texts import LEVELS, Level
from rlc.records import frozen

# Parts of stages that cost nothing, whatever they are. Stages are priced without them, so that the
# price of one cannot depend on them, and trials that differ in nothing else are priced once.
UNPRICED = (
    *("optimizer", "advantage", "aggregate", "on_error", "give_up", "deadlines", "kl_guard"),
    *("budget", "track"),
)


@frozen
class SweepCost:
    """What a sweep costs, by level. ``trials`` is how many runs it has, ``least`` and ``most`` the
    expected cost of the cheapest and of the dearest one alone, ``least_tokens`` what one takes at
    least, as expected; ``shared`` what it saves that stages before the one that is tried are run
    once for all trials that have them. Of configurations that are drawn, ``low`` has the cheapest
    ones only and ``high`` the dearest; with a halving, ``low`` and ``expected`` have as many steps
    as its rungs leave."""

    trials: int
    total: Mapping[Level, Money]
    least: Money
    most: Money
    least_tokens: float
    shared: Money
    free: bool
    priced: int  # configurations that differ in what costs something


@frozen
class _PricedConfiguration:
    """A configuration: the bill of the stages before the one that is tried, and of the rest."""

    before: Mapping[Level, Money]
    tried: Mapping[Level, Money]
    tokens: float  # that are expected of all of it
    steps: int  # of the stage that is tried
    free: bool

    def alone(self, level: Level) -> Money:
        return self.before[level] + self.tried[level]


def sweep_cost(
    sweep: SweepPlan, configurations: Iterable[Sequence[StagePlan]], recipe: str
) -> SweepCost:
    """Return what a sweep costs. ``configurations`` are the stages of each one, or, if they are
    drawn, of those that they are drawn from, at both ends of every range."""
    known: dict[str, _PricedConfiguration] = {}
    found, befores = [], dict[str, _PricedConfiguration]()
    for stages in configurations:
        key = repr([_bare(stage) for stage in stages])
        if key not in known:
            known[key] = _priced(sweep.of, [_bare(stage) for stage in stages], recipe)
        found.append(known[key])
        befores.setdefault(repr(_before(sweep.of, stages)), known[key])
    count = sweep.search.n or len(found)
    total: dict[Level, Money] = {}
    for level in LEVELS:
        bills = [_times(one.tried[level], _runs(sweep, level, one)) for one in found]
        if sweep.search.n is not None:
            by_size = sorted(bills, key=lambda money: money.usd)
            ends = {"low": by_size[:1], "expected": by_size, "high": by_size[-1:]}[level]
            bills = [_times(money, count / len(ends)) for money in ends]
        shared = [_times(one.before[level], sweep.seeds) for one in befores.values()]
        total[level] = sum([*bills, *shared], Money())
    alone = sorted((one.alone("expected") for one in found), key=lambda money: money.usd)
    before = sum((one.before["expected"].usd for one in found), 0.0) * count / len(found)
    once = sum(one.before["expected"].usd for one in befores.values())
    return SweepCost(
        trials=count * sweep.seeds,
        total=total,
        least=alone[0],
        most=alone[-1],
        least_tokens=min(one.tokens for one in found),
        shared=Money((before - once) * sweep.seeds),
        free=all(one.free for one in found),
        priced=len(known),
    )


def _priced(of: str, stages: Sequence[StagePlan], recipe: str) -> _PricedConfiguration:
    located = located_stages(stages, recipe)
    by_name = {stage.name: stage for stage in located}
    before = {stage.name for stage in _before(of, stages)}
    costs = [stage_cost(stage, by_name) for stage in located]
    first = [cost for cost in costs if cost.stage in before]
    rest = [cost for cost in costs if cost.stage not in before]
    return _PricedConfiguration(
        before={level: total_cost(first, level) for level in LEVELS},
        tried={level: total_cost(rest, level) for level in LEVELS},
        tokens=sum(cost.tokens("expected") for cost in costs),
        steps=next(cost.times for cost in costs if cost.stage == of),
        free=all(cost.free for cost in costs),
    )


def _before(of: str, stages: Sequence[StagePlan]) -> tuple[StagePlan, ...]:
    """The stages before the one that is tried."""
    return tuple(stage for stage in stages if stage.name != of and stage.trains)


def _bare(stage: StagePlan) -> StagePlan:
    """A stage without what costs nothing."""
    there = children_of(stage) or {}
    return evolved(stage, {name: None for name in UNPRICED if name in there})


def _runs(sweep: SweepPlan, level: Level, one: _PricedConfiguration) -> float:
    """How many whole runs the trials of a configuration are expected to come to."""
    search = sweep.search
    if search.eta is None or search.first is None or level == "high":
        return sweep.seeds
    steps, survivors = rung_share(search.eta, search.first, one.steps)
    return steps + (sweep.seeds - 1) * survivors


def rung_share(eta: int, first: int, steps: int) -> tuple[float, float]:
    """Return the share of all steps that a halving runs, and that of the runs that it finishes:
    after ``first``, ``first * eta``, … steps one of ``eta`` goes on."""
    alive, done, at, run = 1.0, 0, first, 0.0
    while at < steps:
        run += alive * (at - done)
        alive, done, at = alive / eta, at, at * eta
    return (run + alive * (steps - done)) / steps, alive


def _times(money: Money, number: float) -> Money:
    return Money(money.usd * number, money.complete)
