"""Tokens and dollars as tables."""

from __future__ import annotations

from collections.abc import Iterable

from rlc.catalog.facts.models import prices_as_of
from rlc.explanation.layout import Lines, count, dollars, wrapped
from rlc.pricing.cost import KINDS, Money, StageCost, bill_rows
from rlc.pricing.texts import LEVELS

FREE = "free: it runs on this machine, or on a server of your own"
_LABELS = {"cached": "cached prefill"}
_LABEL, _TOKENS, _USD = 15, 13, 12  # columns


def cost_lines(cost: StageCost) -> Lines:
    """The bill of one stage."""
    head = f"tokens {'an' if cost.kind == 'eval' else 'a'} {cost.unit}"
    whole = "" if cost.free else f"{f'USD of {count(cost.times, cost.unit)}':>{3 * _USD}}"
    yield f"{'':{_LABEL}}{head:>{3 * _TOKENS}}{whole}".rstrip()
    levels = _cells(LEVELS, _TOKENS)
    yield f"{'':{_LABEL}}{levels}" + ("" if cost.free else _cells(LEVELS))
    for kind in KINDS:
        yield from _kind_line(kind, cost)
    if any(cost.tokens_before[level].total for level in LEVELS):
        before = " / ".join(f"{cost.tokens_before[level].total:,.0f}" for level in LEVELS)
        yield f"before the first step: {before} tokens"
    if cost.free:
        yield FREE
        return
    blank = " " * 3 * _TOKENS
    yield f"{f'one {cost.unit}':{_LABEL}}{blank}{_money(cost.step[level] for level in LEVELS)}"
    yield f"{'total':{_LABEL}}{blank}{_money(cost.total(level) for level in LEVELS)}"
    yield from wrapped(f"prices of {prices_as_of()}")
    yield "a server of your own (--base-url) bills none of it"


def _kind_line(kind: str, cost: StageCost) -> Lines:
    """One kind, unless none of it is used."""
    tokens = [cost.step_parts(level).get(kind) for level in LEVELS]
    bill = [cost.bill[level].get(kind, Money()) for level in LEVELS]
    if not any(tokens) and not any(bill):
        return
    counts = _cells(("" if n is None else f"{round(n):,}" for n in tokens), _TOKENS)
    yield f"{_LABELS.get(kind, kind):{_LABEL}}{counts}{'' if cost.free else _money(bill)}".rstrip()


def job_cost_lines(costs: tuple[StageCost, ...]) -> Lines:
    """The bill of all stages together, by kind."""
    if all(cost.free for cost in costs):
        yield FREE
        return
    yield f"{'':{_LABEL}}{_cells(LEVELS)}"
    rows = bill_rows(costs)
    for kind, amounts in rows.items():
        yield f"{_LABELS.get(kind, kind):{_LABEL}}{_money(amounts)}"
    if not all(money.complete for money in rows["total"]):
        yield "≥: a lower bound, for a price in it is unknown"


def _money(amounts: Iterable[Money]) -> str:
    return _cells(dollars(money, sign="") for money in amounts)


def _cells(texts: Iterable[str], width: int = _USD) -> str:
    """Columns, with a blank before a number that is too wide for its own."""
    return "".join(f" {text:>{width - 1}}" for text in texts)
