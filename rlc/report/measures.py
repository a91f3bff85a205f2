"""Measures of stages: rewards, losses, results of evaluations; and the tokens and dollars used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import isclose

from attrs import frozen

from rlc.catalog import UNKNOWN_PRICE, WatchedMetric, model_price, part_cost
from rlc.plan import Plan, StagePlan, is_training
from rlc.report.drawing import Chart, Series, draw, figure, series
from rlc.report.run_files import TOKEN_KINDS, RunFiles, Spent
from rlc.runtime import evaluation_results, watched_so_far, window_label, window_mean


@frozen
class Measure:
    """A metric of a stage, over its steps or, of the ``kind`` "eval", over evaluations. ``rises``:
    more is better; None: no value is better."""

    stage: str
    kind: str
    name: str
    curve: Series
    rises: bool | None = True

    @property
    def title(self) -> str:
        """Its name with that of the stage."""
        return f"{self.stage}: {self.name}"

    @property
    def first(self) -> float:
        """The mean of the first steps, or the first evaluation."""
        values = self.curve.values
        return values[0] if self.kind == "eval" else window_mean(values, last=False) or 0.0

    @property
    def last(self) -> float:
        """The mean of the last steps, or the last evaluation."""
        values = self.curve.values
        return values[-1] if self.kind == "eval" else window_mean(values, last=True) or 0.0

    @property
    def label(self) -> str:
        """How many steps the first and the last ones are."""
        if self.kind != "eval":
            return window_label(len(self.curve.values))
        return "first evaluation → last" if len(self.curve.values) > 1 else "one evaluation"

    @property
    def best(self) -> tuple[float, int] | None:
        """The best value and its step, of equals the first; None if no value is better."""
        if self.rises is None:
            return None
        sign = 1 if self.rises else -1
        pairs = zip(self.curve.values, self.curve.steps, strict=True)
        return max(pairs, key=lambda pair: (sign * pair[0], -pair[1]))

    def better(self, value: float, other: float) -> bool | None:
        """Return whether a value is better than another; None if neither is."""
        return None if self.rises is None or value == other else (value > other) == self.rises


def measures(files: RunFiles, stage: StagePlan) -> Iterator[Measure]:
    """Yield what a stage is about, as far as it was measured."""
    records = files.of_stage(stage.name)
    names = dict.fromkeys(n for r in records for n in evaluation_results(r, stage.name))
    found = [WatchedMetric(name, f"eval/{stage.name}/{name}") for name in names if "/" not in name]
    about = watched_so_far(stage, records)
    for one in about:
        found += (one, *one.parts)
    for one in found:
        if (curve := series(one.label, records, one.key)) is not None:
            yield Measure(stage.name, stage.kind, one.label, curve, one.rises)
    if about and (held := series(f"held-out {about[0].label}", records, about[0].held_out)):
        yield Measure(stage.name, "eval", held.name, held, about[0].rises)


def distinct(found: Iterable[Measure]) -> list[Measure]:
    """Return the measures without those that had the same values as one before."""
    by_values: dict[tuple[float, ...], Measure] = {}
    for one in found:
        by_values.setdefault(one.curve.values, one)
    return list(by_values.values())


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
    """Add up what a run used, including steps that were repeated."""
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
        price = model_price(stage.model) or UNKNOWN_PRICE
        mine = [row for row in spent if row.stage == stage.name]
        tokens = {kind: sum(row.tokens[kind] for row in mine) for kind in TOKEN_KINDS}
        costs = {kind: part_cost(n, getattr(price, _PRICES[kind])) for kind, n in tokens.items()}
        # A model that is asked has prices of its own, and the journal has the sum of both.
        paid = isclose(sum(usd or 0.0 for usd in costs.values()), sum(r.usd or 0.0 for r in mine))
        for kind in (kind for kind, n in tokens.items() if n):
            yield TokenKind(stage.name, kind, tokens[kind], costs[kind] if paid else None)


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
    """Draw the dollars after each step, as in metrics.jsonl, and the budget of each stage."""
    curves: list[Series | None] = []
    for stage in files.plan.stages:
        spent = series(stage.name, files.of_stage(stage.name), "spend/usd")
        curves.append(spent)
        if spent is not None and is_training(stage) and stage.budget.usd is not None:
            limits = (stage.budget.usd,) * len(spent.steps)
            curves.append(Series(f"budget of {stage.name}", spent.steps, limits))
    shown = figure("spend", "Spent", curves, note="dollars", bounds=(0, None))
    return draw(shown) if shown else None
