"""Dollars of a plan and of a sweep, before anything runs: low, expected and high.

``high`` has every reply at max_tokens, every episode at its last turn, every try after a failure,
and no cache hit; ``expected`` and ``low`` have the shares of :mod:`rlc.pricing.shapes`, no failure,
and a cache that never misses.
A part without a known price makes the sum a lower bound.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isfinite

from rlc.catalog import (
    FREE,
    MODEL_FOLDER,
    UNKNOWN_PRICE,
    find_model,
    find_provider,
    located_files,
    located_stages,
    model_price,
    part_cost,
)
from rlc.plan import (
    EndpointPlan,
    KlPlan,
    ModelPlan,
    Plan,
    SavePlan,
    StagePlan,
    SweepPlan,
    is_evaluation,
    is_training,
)
from rlc.plan.leaves import children_of, evolved
from rlc.pricing.asked import ASKED, AskedTokens, asked_tokens
from rlc.pricing.measured import Seen, measured_stages
from rlc.pricing.shapes import LEVELS, Level, times
from rlc.pricing.tokens import Tokens, step_tokens, tokens_before
from rlc.records import frozen, values_of

# What a bill is made of. A stage's own sampling and training have the first four; models that are
# asked and not trained have those of :mod:`rlc.pricing.asked`.
KINDS = ("prefill", "cached", "sample", "train", "reference", *ASKED, "evaluation", "storage")

GIGABYTE = 1e9
MONTH = 30 * 24 * 3_600
# Adapter weights and Adam's two moments: in 16 bits, or in 32.
BYTES_PER_PARAMETER = {"low": 6, "expected": 12, "high": 12}


@frozen
class Money:
    """An amount in USD. One that is not ``complete`` is a lower bound: part of it has no known
    price. An infinite one has no bound."""

    usd: float = 0.0
    complete: bool = True

    def __add__(self, other: Money) -> Money:
        return Money(self.usd + other.usd, self.complete and other.complete)

    def __mul__(self, number: float) -> Money:
        return Money(times(number, self.usd), self.complete)

    def __bool__(self) -> bool:
        """Return whether anything is paid, as far as is known."""
        return bool(self.usd) or not self.complete

    @property
    def known(self) -> bool:
        """Return whether anything is known of it."""
        return self.complete or self.usd > 0

    @property
    def at_least(self) -> float | None:
        """Return USD, or what is known of it; None if there is no bound."""
        return self.usd if isfinite(self.usd) else None

    @property
    def total(self) -> float | None:
        """Return USD; None if only a lower bound is known, or there is no bound."""
        return self.at_least if self.complete else None


UNKNOWN = Money(0.0, complete=False)


@frozen
class StageCost:
    """The cost of a stage: tokens by level, of one step (or evaluation) and before the first, those
    of the models that it asks, and the bill of the whole stage by level and kind. ``unpriced`` are
    the models of which a price is unknown. ``measured``: from episodes that were played."""

    stage: str
    kind: str  # "train", "sft" or "eval"
    times: int  # steps, or evaluations
    step_tokens: dict[Level, Tokens]
    tokens_before: dict[Level, Tokens]
    asked: dict[Level, tuple[AskedTokens, ...]]
    step: dict[Level, Money]
    bill: dict[Level, dict[str, Money]]
    unpriced: tuple[str, ...] = ()
    measured: bool = False

    @property
    def free(self) -> bool:
        """Return whether nothing is paid: neither for the model itself, nor for one that it
        asks."""
        return not self.total("high")

    @property
    def unit(self) -> str:
        return "evaluation" if self.kind == "eval" else "step"

    def step_parts(self, level: Level) -> dict[str, float]:
        """Return the tokens of one step by the lines of a bill."""
        parts = values_of(self.step_tokens[level])
        for one in self.asked[level]:
            parts[one.kind] = parts.get(one.kind, 0.0) + one.step.total
        return parts

    def parts(self, level: Level) -> dict[str, float]:
        """Return the tokens of the whole stage by the lines of a bill."""
        parts = values_of(self.step_tokens[level] * self.times + self.tokens_before[level])
        for one in self.asked[level]:
            parts[one.kind] = parts.get(one.kind, 0.0) + one.total(self.times).total
        return parts

    def total(self, level: Level) -> Money:
        """Return the cost of the whole stage."""
        return sum(self.bill[level].values(), Money())

    def tokens(self, level: Level) -> float:
        """Return the tokens of the whole stage, and of the models that it asks."""
        return sum(self.parts(level).values())


def plan_cost(plan: Plan, seen: Mapping[str, Seen] = {}) -> tuple[StageCost, ...]:
    """Return the cost of each stage; ``seen`` has by stage what is known of its episodes."""
    return stage_costs(located_files(plan).stages, seen)


def stage_costs(
    located: Sequence[StagePlan], seen: Mapping[str, Seen] = {}
) -> tuple[StageCost, ...]:
    """Return the cost of each stage of a plan whose paths start at the working directory."""
    stages = {stage.name: stage for stage in located}
    return tuple(stage_cost(stage, stages, seen.get(stage.name, {})) for stage in located)


STATE_PRICES = "state them (`price = { … }`), or limit tokens or time: `limit(tokens = …)`"


def unknown_prices(stages: Iterable[StageCost], quote: str = "`") -> str | None:
    """Return of which models a price is unknown, as a clause; None if there are none."""
    names = dict.fromkeys(f"{quote}{name}{quote}" for cost in stages for name in cost.unpriced)
    return f"not all prices of {' and '.join(names)} are known" if names else None


def total_cost(stages: Iterable[StageCost], level: Level) -> Money:
    """Return the cost of the whole plan."""
    return sum((stage.total(level) for stage in stages), Money())


def bill_of(stages: Iterable[StageCost], level: Level) -> dict[str, Money]:
    """Return the bill of the whole plan by :data:`KINDS`: all evaluations are one kind."""
    bill = dict.fromkeys(KINDS, Money())
    for stage in stages:
        for kind, money in stage.bill[level].items():
            name = stage.unit if stage.unit == "evaluation" else kind
            bill[name] += money
    return bill


def bill_rows(stages: Iterable[StageCost]) -> dict[str, list[Money]]:
    """Return the bill of the whole plan: the amounts by level of each kind that it has, and the
    total."""
    stages = tuple(stages)
    bills = [bill_of(stages, level) for level in LEVELS]
    rows = {kind: [bill[kind] for bill in bills] for kind in KINDS}
    total = [total_cost(stages, level) for level in LEVELS]
    return {kind: amounts for kind, amounts in rows.items() if any(amounts)} | {"total": total}


def stage_cost(
    stage: StagePlan, stages: Mapping[str, StagePlan] | None = None, seen: Seen | None = None
) -> StageCost:
    """Return the cost of one stage, whose paths start at the working directory; ``stages`` holds
    those that an evaluation may follow. If all of its environments were ``seen``, low and high are
    the ends of an interval that holds in nine of ten runs."""
    times = 1  # steps, or evaluations
    evaluated = (stages or {}).get(stage.after or "")
    if is_training(stage):
        times = stage.steps
    elif is_evaluation(stage) and evaluated is not None and is_training(evaluated):
        times += stage.first + (0 if stage.every is None else (evaluated.steps - 1) // stage.every)
    measured = measured_stages(stage, seen or {})
    priced: dict[Level, tuple[StagePlan, Level]] = {
        level: (stage, level) if measured is None else (measured[level], "expected")
        for level in LEVELS
    }
    one = {level: step_tokens(*priced[level]) for level in LEVELS}
    before = {level: tokens_before(*priced[level]) for level in LEVELS}
    asked = {level: tuple(asked_tokens(*priced[level])) for level in LEVELS}
    bill = {
        level: _own(stage, one[level] * times + before[level])
        | _asked(asked[level], times)
        | {"storage": _storage(stage, level)}
        for level in LEVELS
    }
    return StageCost(
        stage=stage.name,
        kind=stage.kind,
        times=times,
        step_tokens=one,
        tokens_before=before,
        asked=asked,
        step={
            level: sum(
                (*_own(stage, one[level]).values(), *_asked(asked[level], None).values()), Money()
            )
            for level in LEVELS
        },
        bill=bill,
        unpriced=tuple(_unpriced(stage, asked["high"])),
        measured=measured is not None,
    )


def _unpriced(stage: StagePlan, asked: Iterable[AskedTokens]) -> Iterator[str]:
    kl = stage.policy_gradient.kl if stage.policy_gradient else None
    models = [stage.model, *([] if kl is None else [kl.reference.model])]
    for model in (*models, *(one.model for one in asked)):
        if None in _prices(model).values():
            yield model.model if isinstance(model, EndpointPlan) else model.base


def _own(stage: StagePlan, tokens: Tokens) -> dict[str, Money]:
    """Return the price of a stage's own tokens, by kind."""
    kl = stage.policy_gradient.kl if stage.policy_gradient else None
    prices = _prices(stage.model)
    prices["reference"] = None if kl is None else reference_price(kl)
    return {kind: _money(count, prices[kind]) for kind, count in values_of(tokens).items()}


def _asked(asked: Iterable[AskedTokens], times: int | None) -> dict[str, Money]:
    """Return the price of the tokens of other models, by kind: of a whole stage, or of one step."""
    bill: dict[str, Money] = {}
    for one in asked:
        prices, tokens = _prices(one.model), one.step if times is None else one.total(times)
        for kind, count in values_of(tokens).items():
            money = _money(count, prices.get(kind))
            bill[one.kind] = bill.get(one.kind, Money()) + money
    return bill


def _money(tokens: float, price: float | None) -> Money:
    cost = part_cost(tokens, price)
    return UNKNOWN if cost is None else Money(cost)


def is_free(model: ModelPlan) -> bool:
    """Return whether training costs nothing: on a service that bills nothing, or on the user's own
    server for a model of this machine."""
    known, there = find_model(model.base), find_provider(model.service)
    own = not known.hosted if known else re.fullmatch(MODEL_FOLDER, model.base)
    if there is None or not there.bills:
        return there is not None
    return bool(own) and model.base not in there.model_names


def _prices(model: ModelPlan | EndpointPlan) -> dict[str, float | None]:
    if isinstance(model, EndpointPlan):
        return {"prefill": model.prompt_price, "sample": model.reply_price}
    price = FREE if is_free(model) else model_price(model)
    return values_of(price or UNKNOWN_PRICE)


def reference_price(kl: KlPlan) -> float | None:
    """Return USD per million tokens that the reference reads: a prefill of its model."""
    return _prices(kl.reference.model)["prefill"]


def _storage(stage: StagePlan, level: Level) -> Money:
    """Return the price of the checkpoints that a stage leaves, until they expire or for a month."""
    if not is_training(stage) or is_free(stage.model):
        return Money()
    size, there = checkpoint_bytes(stage.model, level), find_provider(stage.model.service)
    each = stage.model.price.checkpoint if stage.model.price is not None else None
    price = None if there is None else there.storage
    if each is None and price is not None and (size is not None or price == 0):
        each = (size or 0.0) / GIGABYTE * price
    if each is None:
        return UNKNOWN
    months = MONTH if stage.save.ttl_seconds is None else stage.save.ttl_seconds
    kept = kept_checkpoints(stage.save, stage.steps)
    return Money(kept * each * months / MONTH)


def kept_checkpoints(save: SavePlan, steps: int) -> int:
    """Return how many checkpoints there are when the stage ends."""
    saved = 1 if save.every is None else -(-steps // save.every)
    return min(saved, save.keep + save.best)


def checkpoint_bytes(model: ModelPlan, level: Level) -> float | None:
    """Return the bytes of a checkpoint; None if the adapter's size is unknown."""
    parameters = lora_parameters(model)
    return None if parameters is None else parameters * BYTES_PER_PARAMETER[level]


def lora_parameters(model: ModelPlan) -> int | None:
    """Return the number of parameters of the adapter; None if unknown."""
    known = find_model(model.base)
    if known is None or known.lora is None:
        return None
    trained = (model.train_mlp, model.train_attn, model.train_unembed)
    return model.lora_rank * sum(n for n, on in zip(known.lora, trained, strict=True) if on)


# Parts of stages that cost nothing, whatever they are. Stages are priced without them, so that the
# price of one cannot depend on them, and trials that differ in nothing else are priced once.
UNPRICED = (
    *("optimizer", "advantage", "aggregate", "give_up", "deadlines", "kl_guard"),
    *("budget", "track", "players"),
)


@frozen
class SweepCost:
    """The cost of a sweep, by level. ``trials`` is its number of runs, ``least`` and ``most`` the
    expected cost of the cheapest and of the dearest one alone, ``least_tokens`` the least expected
    tokens of one; ``shared`` is saved by running the stages before the one that is tried once for
    all trials that have them. Of sampled configurations ``low`` has the cheapest only and ``high``
    the dearest; with a halving, ``low`` and ``expected`` have as many steps as its rungs leave."""

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


def sweep_cost(
    sweep: SweepPlan, configurations: Iterable[Sequence[StagePlan]], recipe: str
) -> SweepCost:
    """Return the cost of a sweep. ``configurations`` are the stages of each one, or, if they are
    sampled, of those that they are sampled from, at both ends of every range."""
    known: dict[str, _PricedConfiguration] = {}
    found, befores = [], dict[str, _PricedConfiguration]()
    for stages in configurations:
        bare = [_bare(stage) for stage in stages]
        key = repr(bare)
        if key not in known:
            known[key] = _priced(sweep.of, bare, recipe)
        found.append(known[key])
        befores.setdefault(repr(_before(sweep.of, stages)), known[key])
    count = sweep.search.n or len(found)
    total: dict[Level, Money] = {}
    for level in LEVELS:
        bills = [one.tried[level] * _runs(sweep, level, one) for one in found]
        if sweep.search.n is not None:
            by_size = sorted(bills, key=lambda money: money.usd)
            ends = {"low": by_size[:1], "expected": by_size, "high": by_size[-1:]}[level]
            bills = [money * (count / len(ends)) for money in ends]
        shared = [one.before[level] * sweep.seeds for one in befores.values()]
        total[level] = sum([*bills, *shared], Money())
    runs = (one.before["expected"] + one.tried["expected"] for one in found)
    alone = sorted(runs, key=lambda money: money.usd)
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
    before = {stage.name for stage in _before(of, stages)}
    costs = stage_costs(located_stages(stages, recipe))
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
    """Return the stages before the one that is tried."""
    return tuple(stage for stage in stages if stage.name != of and stage.trains)


def _bare(stage: StagePlan) -> StagePlan:
    """Return a stage without the parts that cost nothing."""
    return evolved(stage, {name: None for name in children_of(stage) or {} if name in UNPRICED})


def _runs(sweep: SweepPlan, level: Level, one: _PricedConfiguration) -> float:
    """Return the steps that the trials of a configuration are expected to run, in whole runs."""
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
