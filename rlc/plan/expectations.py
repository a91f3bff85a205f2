"""Expectations: comparisons in a recipe, checked before the job runs, or after it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Literal

from rlc.plan.units import show
from rlc.records import Record, frozen

# What a number is of: a share is written in percent, a duration is in seconds.
Unit = Literal["number", "share", "money", "duration"]
Over = Literal["last", "first", "min", "max", "mean", "sum"]
Op = Literal["<", "<=", ">", ">=", "==", "!="]

COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@frozen(eq=False)
class QuantityPlan(Record):
    """A number of a job, which a recipe writes as ``path``.

    ``estimate``: of what a ``stage`` takes (None: of the whole job), ``key`` as in
    :mod:`rlc.pricing.quantities`. ``value``: one of the stage's plan, ``key`` its dotted path
    there. ``metric``: the entry ``key`` of ``metrics.jsonl``, ``over`` the stage's steps or
    evaluations that have it. Metrics are known after the run, the others before it.
    """

    path: str
    kind: Literal["estimate", "value", "metric"]
    stage: str | None
    key: str
    unit: Unit
    over: Over | None = None


@frozen(eq=False)
class TermPlan(Record):
    """``factor`` times a quantity."""

    factor: float
    quantity: QuantityPlan


@frozen(eq=False)
class ExpectationPlan(Record):
    """``quantity op constant + terms``. All its quantities are known at the same time."""

    quantity: QuantityPlan
    op: Op
    constant: float
    terms: tuple[TermPlan, ...] = ()

    @property
    def after(self) -> bool:
        """Return whether it is known only after the run."""
        return self.quantity.kind == "metric"

    @property
    def quantities(self) -> tuple[QuantityPlan, ...]:
        return (self.quantity, *(term.quantity for term in self.terms))

    @property
    def right(self) -> str:
        """Return the right side of the comparison, as a recipe writes it."""
        unit, parts = self.quantity.unit, list[str]()
        for term in self.terms:
            path, own = term.quantity.path, term.quantity.unit
            if unit in ("money", "duration") and own != unit:  # so much for each
                parts.append(f"{amount(term.factor, unit)} * {path}")
            else:
                parts.append(path if term.factor == 1 else f"{term.factor:.10g} * {path}")
        if self.constant or not parts:
            parts.append(amount(self.constant, unit))
        return " + ".join(parts).replace("+ -", "- ")

    @property
    def compared(self) -> str:
        """Return the left side of the comparison, with its operator."""
        return f"{self.quantity.path} {self.op}"

    @property
    def text(self) -> str:
        return f"{self.compared} {self.right}"

    def judged(self, value_of: Callable[[QuantityPlan], float | None]) -> ExpectationResult:
        """Return whether it holds for these values, of which some may be unknown."""
        found = value_of(self.quantity)
        others = [value_of(term.quantity) for term in self.terms]
        known = [value for value in others if value is not None]
        if found is None or len(known) < len(others):
            return self.unknown("not all of it is known")
        if any(map(math.isinf, (found, *known))):
            return self.unknown("it has no bound", holds=False)
        factors = (term.factor for term in self.terms)
        expected = sum(map(operator.mul, factors, known), self.constant)
        holds = COMPARES[self.op](found, expected)
        return ExpectationResult(self.text, holds, found, expected, self.quantity.unit)

    def unknown(self, why: str, holds: bool | None = None) -> ExpectationResult:
        """Return a result without numbers, and why they are not known."""
        return ExpectationResult(self.text, holds, None, None, self.quantity.unit, why)


@frozen(eq=False)
class ExpectationResult(Record):
    """The result of an expectation.

    Attributes:
        text: the expectation, as a recipe writes it.
        holds: True if it is met; None if that is not known, or not yet.
        found: the number on its left; None if it is not known.
        expected: the number on its right; None if it is not known.
        unit: of both numbers: "number", "share" (of 1), "money" (USD) or "duration" (seconds).
        why: the reason why its numbers are not known; empty if they are.
    """

    text: str
    holds: bool | None
    found: float | None
    expected: float | None
    unit: Unit = "number"
    why: str = ""

    @property
    def said(self) -> str:
        """Return the numbers, for people: ``it is 62.5%``."""
        if self.found is None or self.expected is None:
            return self.why
        is_constant = self.text.endswith(f" {amount(self.expected, self.unit)}")
        other = "" if is_constant else f", to be compared with {shown(self.expected, self.unit)}"
        return f"it is {shown(self.found, self.unit)}{other}"


def amount(value: float, unit: Unit) -> str:
    """Return a number as a recipe writes it."""
    if unit == "share":
        return f"{100 * value:.10g}%"
    if unit == "duration":
        return show(value, "duration")
    whole = float(value).is_integer() and abs(value) < 1e15
    text = show(int(value), "any") if whole else f"{value:.10g}"
    return text if unit == "number" else f"${text}".replace("$-", "-$")


def shown(value: float, unit: Unit) -> str:
    """Return a number as a recipe writes it, rounded for people."""
    if unit == "money" and abs(value) >= 0.1:
        return amount(round(value, 2), unit)
    if unit == "number" and abs(value) >= 1_000:
        return amount(round(value), unit)
    return amount(float(f"{value:.4g}"), unit)
