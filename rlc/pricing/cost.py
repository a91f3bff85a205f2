"""Dollars of a plan, before anything runs: low, expected and high.

``high`` has every reply at max_tokens, every episode at its last turn and no cache hit;
``expected`` and ``low`` have the shares of :mod:`rlc.pricing.shapes` and a cache that never misses.
A part without a known price makes the sum a lower bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from rlc.catalog import FREE, Price, find_model, located_files, part_cost, price_of, storage_price
from rlc.plan import (
    LOCAL,
    EndpointPlan,
    KlPlan,
    ModelPlan,
    Plan,
    SavePlan,
    StagePlan,
    is_evaluation,
    is_training,
)
from rlc.pricing.asked import ASKED, AskedTokens, asked_tokens
from rlc.pricing.texts import LEVELS, Level
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
    price."""

    usd: float = 0.0
    complete: bool = True

    def __add__(self, other: Money) -> Money:
        return Money(self.usd + other.usd, self.complete and other.complete)

    def __bool__(self) -> bool:
        """Return whether there is something to pay, as far as is known."""
        return bool(self.usd) or not self.complete

    @property
    def total(self) -> float | None:
        """USD; None if only a lower bound is known."""
        return self.usd if self.complete else None


UNKNOWN = Money(0.0, complete=False)


@frozen
class StageCost:
    """The cost of a stage: tokens by level, of one step (or evaluation) and before the first, those
    of the models that it asks, and the bill of the whole stage by level and kind."""

    stage: str
    kind: str  # "train", "sft" or "eval"
    times: int  # steps, or evaluations
    free: bool
    step_tokens: dict[Level, Tokens]
    tokens_before: dict[Level, Tokens]
    asked: dict[Level, tuple[AskedTokens, ...]]
    step: dict[Level, Money]
    bill: dict[Level, dict[str, Money]]

    @property
    def unit(self) -> str:
        return "evaluation" if self.kind == "eval" else "step"

    def step_parts(self, level: Level) -> dict[str, float]:
        """Tokens of one step by the lines of a bill."""
        parts = values_of(self.step_tokens[level])
        for one in self.asked[level]:
            parts[one.kind] = parts.get(one.kind, 0.0) + one.step.total
        return parts

    def parts(self, level: Level) -> dict[str, float]:
        """Tokens of the whole stage by the lines of a bill."""
        parts = values_of(self.step_tokens[level] * self.times + self.tokens_before[level])
        for one in self.asked[level]:
            parts[one.kind] = parts.get(one.kind, 0.0) + one.total(self.times).total
        return parts

    def total(self, level: Level) -> Money:
        """The whole stage."""
        return sum(self.bill[level].values(), Money())

    def tokens(self, level: Level) -> float:
        """Tokens of the whole stage, and of the models that it asks."""
        return sum(self.parts(level).values())


def plan_cost(plan: Plan) -> tuple[StageCost, ...]:
    """The cost of each stage."""
    return stage_costs(located_files(plan).stages)


def stage_costs(located: Sequence[StagePlan]) -> tuple[StageCost, ...]:
    """The cost of each stage of a plan whose paths start at the working directory."""
    stages = {stage.name: stage for stage in located}
    return tuple(stage_cost(stage, stages) for stage in located)


def total_cost(stages: Iterable[StageCost], level: Level) -> Money:
    """The whole plan."""
    return sum((stage.total(level) for stage in stages), Money())


def bill_of(stages: Iterable[StageCost], level: Level) -> dict[str, Money]:
    """The bill of the whole plan, by :data:`KINDS`: what evaluations take is one kind."""
    bill = dict.fromkeys(KINDS, Money())
    for stage in stages:
        for kind, money in stage.bill[level].items():
            name = stage.unit if stage.unit == "evaluation" else kind
            bill[name] += money
    return bill


def bill_rows(stages: Iterable[StageCost]) -> dict[str, list[Money]]:
    """The bill of the whole plan: the amounts by level of each kind that it has, and the total."""
    stages = tuple(stages)
    bills = [bill_of(stages, level) for level in LEVELS]
    rows = {kind: [bill[kind] for bill in bills] for kind in KINDS}
    total = [total_cost(stages, level) for level in LEVELS]
    return {kind: amounts for kind, amounts in rows.items() if any(amounts)} | {"total": total}


def stage_cost(stage: StagePlan, stages: Mapping[str, StagePlan] | None = None) -> StageCost:
    """The cost of one stage; ``stages`` holds those that an evaluation may follow. Files are read
    where its paths say, so that they must start at the working directory."""
    times = _times(stage, stages or {})
    one = {level: step_tokens(stage, level) for level in LEVELS}
    before = {level: tokens_before(stage, level) for level in LEVELS}
    asked = {level: tuple(asked_tokens(stage, level)) for level in LEVELS}
    bill = {
        level: _priced(stage, one[level] * times + before[level])
        | _asked(asked[level], times)
        | {"storage": storage_cost(stage, level)}
        for level in LEVELS
    }
    return StageCost(
        stage=stage.name,
        kind=stage.kind,
        times=times,
        free=is_free(stage.model),
        step_tokens=one,
        tokens_before=before,
        asked=asked,
        step={
            level: sum(
                (*_priced(stage, one[level]).values(), *_asked(asked[level], None).values()),
                Money(),
            )
            for level in LEVELS
        },
        bill=bill,
    )


def _times(stage: StagePlan, stages: Mapping[str, StagePlan]) -> int:
    """Steps of a stage; how often an evaluation is done."""
    if is_training(stage):
        return stage.steps
    evaluated = stages.get(stage.after or "")
    if not is_evaluation(stage) or evaluated is None or not is_training(evaluated):
        return 1
    between = 0 if stage.every is None else (evaluated.steps - 1) // stage.every
    return 1 + between + stage.first


def _priced(stage: StagePlan, tokens: Tokens) -> dict[str, Money]:
    """The price of tokens, by kind."""
    kl = stage.policy_gradient.kl if stage.policy_gradient else None
    prices = _prices(stage.model)
    prices["reference"] = None if kl is None else reference_price(kl)
    costs = {kind: part_cost(count, prices[kind]) for kind, count in values_of(tokens).items()}
    return {kind: UNKNOWN if cost is None else Money(cost) for kind, cost in costs.items()}


def _asked(asked: Iterable[AskedTokens], times: int | None) -> dict[str, Money]:
    """The price of what is asked of other models, by kind: of a whole stage, or of one step."""
    bill: dict[str, Money] = {}
    for one in asked:
        prices, tokens = _prices(one.model), one.step if times is None else one.total(times)
        for kind, count in values_of(tokens).items():
            cost = part_cost(count, prices.get(kind))
            money = UNKNOWN if cost is None else Money(cost)
            bill[one.kind] = bill.get(one.kind, Money()) + money
    return bill


def is_free(model: ModelPlan) -> bool:
    """Return whether training costs nothing: on this machine, or on the user's own server for a
    model that Tinker does not have."""
    known = find_model(model.base)
    own = known.service == LOCAL if known else os.path.isdir(model.base)
    return model.service == LOCAL or own


def _prices(model: ModelPlan | EndpointPlan) -> dict[str, float | None]:
    if isinstance(model, EndpointPlan):
        return {"prefill": model.prompt_price, "sample": model.reply_price}
    price = FREE if is_free(model) else price_of(model.base, model.service)
    return values_of(price or Price(None, None, None, None))


def reference_price(kl: KlPlan) -> float | None:
    """USD per million tokens that the reference reads: a prefill of its model."""
    return _prices(kl.reference.model)["prefill"]


def storage_cost(stage: StagePlan, level: Level) -> Money:
    """The checkpoints that a stage leaves, for as long as they are kept, or for a month."""
    if not is_training(stage) or is_free(stage.model):
        return Money()
    size = checkpoint_bytes(stage.model, level)
    if size is None:
        return UNKNOWN
    months = MONTH if stage.save.ttl_seconds is None else stage.save.ttl_seconds
    kept = kept_checkpoints(stage.save, stage.steps)
    return Money(kept * size / GIGABYTE * storage_price() * months / MONTH)


def kept_checkpoints(save: SavePlan, steps: int) -> int:
    """Checkpoints that are there when the stage ends."""
    made = 1 if save.every is None else -(-steps // save.every)
    return min(made, save.keep + save.best)


def checkpoint_bytes(model: ModelPlan, level: Level) -> float | None:
    """Size of a checkpoint; None if the adapter's size is unknown."""
    parameters = lora_parameters(model)
    return None if parameters is None else parameters * BYTES_PER_PARAMETER[level]


def lora_parameters(model: ModelPlan) -> int | None:
    """Parameters of the adapter; None if unknown."""
    known = find_model(model.base)
    if known is None or known.lora is None:
        return None
    trained = (model.train_mlp, model.train_attn, model.train_unembed)
    return model.lora_rank * sum(n for n, on in zip(known.lora, trained, strict=True) if on)
