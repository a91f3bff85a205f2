"""What a run used: tokens and dollars by kind and stage, and how far that is from its budgets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import frozen

from rlc.catalog import part_cost, price_of
from rlc.plan import Plan, is_training
from rlc.report.charts.drawing import Chart, chart
from rlc.report.charts.series import Series, series
from rlc.report.run_files import TOKEN_KINDS, RunFiles, Spent

_PRICES = {"prefill": "prefill", "cached": "cached", "sampled": "sample", "trained": "train"}


@frozen
class TokenKind:
    """Tokens of one kind in one stage; ``usd`` is None if the price is unknown."""

    stage: str
    kind: str
    tokens: int
    usd: float | None


@frozen
class Limit:
    """How much of a budget is used. ``share`` is from 0 to 1."""

    stage: str
    what: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        return min(1.0, self.used / self.limit) if self.limit else 1.0


@frozen
class Spend:
    """``usd`` is the total of the journal; None if some price is unknown."""

    kinds: tuple[TokenKind, ...]
    usd: float | None
    limits: tuple[Limit, ...]
    chart: Chart | None

    @property
    def free(self) -> bool:
        return self.usd == 0

    @property
    def tokens(self) -> int:
        return sum(kind.tokens for kind in self.kinds)


def spend(files: RunFiles) -> Spend:
    """Add up what a run used, steps that were repeated included."""
    known = all(row.usd is not None for row in files.spent)
    usd = sum(row.usd or 0.0 for row in files.spent)
    return Spend(
        kinds=tuple(_kinds(files.plan, files.spent)),
        usd=usd if known else None,
        limits=tuple(_limits(files)),
        chart=_cumulative(files) if usd else None,
    )


def _kinds(plan: Plan, spent: Sequence[Spent]) -> Iterator[TokenKind]:
    for stage in plan.stages:
        price = price_of(stage.model.base, stage.model.service)
        for kind in TOKEN_KINDS:
            if tokens := sum(row.tokens[kind] for row in spent if row.stage == stage.name):
                usd = part_cost(tokens, getattr(price, _PRICES[kind])) if price else None
                yield TokenKind(stage.name, kind, tokens, usd)


def _limits(files: RunFiles) -> Iterator[Limit]:
    for stage in files.plan.trainings:
        mine = [row for row in files.spent if row.stage == stage.name]
        used = {
            "usd": sum(row.usd or 0 for row in mine),
            "tokens": sum(sum(row.tokens.values()) for row in mine),
            "seconds": sum(r.get("time/total", 0.0) for r in files.of_stage(stage.name)),
        }
        for what, amount in used.items():
            limit: float | None = getattr(stage.budget, what)
            if limit is not None:
                yield Limit(stage.name, what, amount, limit)


def _cumulative(files: RunFiles) -> Chart | None:
    """Dollars after each step, as metrics.jsonl has them, and the budget of each stage."""
    curves: list[Series | None] = []
    for stage in files.plan.stages:
        spent = series(stage.name, files.of_stage(stage.name), "spend/usd")
        curves.append(spent)
        if spent is not None and is_training(stage) and stage.budget.usd is not None:
            limits = (stage.budget.usd,) * len(spent.steps)
            curves.append(Series(f"budget of {stage.name}", spent.steps, limits))
    return chart("spend", "Spent", curves, note="dollars", bounds=(0, None))
