"""Expectations as a recipe writes them, to records of the plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, field, frozen

from rlc.catalog.records import Param
from rlc.check.evaluate import Evaluator
from rlc.check.expectations.paths import Found, Paths
from rlc.check.scalars import NUMBERS, describe
from rlc.check.stages import CheckedStage
from rlc.lang.ast import Attribute, Binary, Expectation, Expr, Name, Negative, Number
from rlc.lang.diagnostics import Diagnostics, Fix, Label, replace
from rlc.lang.source import Span
from rlc.plan.expectations import COMPARES, ExpectationPlan, TermPlan, Unit, amount

_RIGHT = Param("the right side", "any", "a number")
_NOUNS: Mapping[Unit, str] = {
    "number": "a number",
    "share": "a number",
    "money": "an amount of money",
    "duration": "a duration",
}
_UNITS: Mapping[str, Unit] = {"money": "money", "duration": "duration"}


@frozen(eq=False, repr=False, slots=False)
class CheckedExpectation:
    """An expectation whose words are all understood, and where it is written."""

    plan: ExpectationPlan
    span: Span

    @property
    def stages(self) -> frozenset[str]:
        """The stages that it is of."""
        return frozenset(one.stage for one in self.plan.quantities if one.stage is not None)


def check_expectations(
    written: Iterable[Expectation],
    evaluator: Evaluator,
    stages: Mapping[str, CheckedStage],
    found: Diagnostics,
) -> tuple[CheckedExpectation, ...]:
    """Return the expectations that can be read, after a report of what is wrong with the others."""
    reader, known = _Reader(Paths(evaluator, stages, found), found), dict[str, CheckedExpectation]()
    for decl in written:
        one = reader.read(decl)
        if one is None:
            continue
        first = known.setdefault(one.plan.text, one)
        if first is not one:
            label = Label(first.span, "the first time")
            message = f"`{one.plan.text}` is expected twice"
            found.warning("RL0678", one.span, message, "keep one of them", label)
    return tuple(known.values())


@define(eq=False, repr=False)
class _Sum:
    """A side of a comparison: a number, and quantities with their factors."""

    unit: Unit
    constant: float = 0.0
    terms: list[tuple[float, Found]] = field(factory=list)

    def times(self, factor: float) -> _Sum:
        terms = [(factor * own, found) for own, found in self.terms]
        return _Sum(self.unit, factor * self.constant, terms)

    def plus(self, other: _Sum) -> _Sum:
        unit: Unit = "share" if "share" in (self.unit, other.unit) else self.unit
        return _Sum(unit, self.constant + other.constant, [*self.terms, *other.terms])

    @property
    def range(self) -> tuple[float, float]:
        """The least and the most that it can be."""
        ends = [sorted((k * found.low, k * found.high)) for k, found in self.terms if k]
        low, high = (self.constant + sum(end[i] for end in ends) for i in (0, 1))
        return low, high


@frozen(eq=False, repr=False, slots=False)
class _Reader:
    paths: Paths
    found: Diagnostics

    def read(self, decl: Expectation) -> CheckedExpectation | None:
        """Return what is expected; None after a report."""
        comparison = decl.comparison
        assert isinstance(comparison.left, Name | Attribute)
        left = self._left(comparison.left)
        right = None if left is None else self._sum(comparison.right)
        if left is None or right is None or not self._units_fit(left, right, comparison):
            return None
        terms: dict[str, TermPlan] = {}
        for factor, one in right.terms:
            path = one.quantity.path
            factor += terms[path].factor if path in terms else 0
            terms[path] = TermPlan(factor, one.quantity)
        used = tuple(term for term in terms.values() if term.factor)
        plan = ExpectationPlan(left.quantity, comparison.op, right.constant, used)  # type: ignore[arg-type]
        for one in (found for _, found in right.terms):
            if one.quantity.path == left.quantity.path:
                message = f"`{one.quantity.path}` is compared with itself"
                advice = "compare it with a number, or with another quantity"
                self.found.error("RL0679", one.span, message, advice)
                return None
            if (one.quantity.kind == "metric") != plan.after:
                early, late = (one, left) if plan.after else (left, one)
                message = (
                    f"`{early.quantity.path}` is known before the run, `{late.quantity.path}` only "
                    "after it"
                )
                label = Label(one.span, "at another time")
                advice = "compare what is known at the same time: two expectations may say it"
                self.found.error("RL0673", comparison.span, message, advice, label)
                return None
        if plan.after and not self._can_turn_out_either_way(plan, left, right, comparison):
            return None
        return CheckedExpectation(plan, comparison.span)

    def _left(self, expr: Name | Attribute) -> Found | None:
        if self.paths.is_path(expr):
            return self.paths.find(expr)
        message = f"`{expr.span.text}` is a param, of which everything is known already"
        advice = "name the value that it decides, such as `main.optimizer.learning_rate`"
        self.found.error("RL0671", expr.span, message, advice)
        return None

    def _sum(self, expr: Expr) -> _Sum | None:
        """Return the sum that an expression is; None after a report."""
        match expr:
            case Name() | Attribute() if self.paths.is_path(expr):
                one = self.paths.find(expr)
                return None if one is None else _Sum(one.quantity.unit, 0.0, [(1.0, one)])
            case Negative():
                inner = self._sum(expr.operand)
                return None if inner is None else inner.times(-1)
            case Binary(op="+" | "-" | "*" | "/"):
                left, right = self._sum(expr.left), self._sum(expr.right)
                if left is None or right is None:
                    return None
                return self._computed(expr, left, right)
        value = self.paths.evaluator.scalars.plain(expr, _RIGHT)
        if value is None:
            return None
        if value.type in (*NUMBERS, *_UNITS):
            unit = _UNITS.get(value.type, "number")
            return _Sum("share" if expr.span.text.endswith("%") else unit, float(value.data))
        message = f"an expectation compares numbers, found {describe(expr)}"
        self.found.error("RL0679", expr.span, message, "for example `expect job.cost.high < $20`")
        return None

    def _computed(self, expr: Binary, left: _Sum, right: _Sum) -> _Sum | None:
        plain = [not side.terms and side.unit in ("number", "share") for side in (left, right)]
        if expr.op in "+-":
            if _NOUNS[left.unit] == _NOUNS[right.unit]:
                return left.plus(right if expr.op == "+" else right.times(-1))
            message = f"`{expr.op}` does not work on {_NOUNS[left.unit]} and {_NOUNS[right.unit]}"
            self.found.error("RL0672", expr.span, message, "both sides are of one kind")
            return None
        if expr.op == "*" and any(plain):
            return left.times(right.constant) if plain[1] else right.times(left.constant)
        if expr.op == "*" and not (left.terms and right.terms):
            # A price for each: `$0.10 * main.steps`.
            fixed, other = (right, left) if left.terms else (left, right)
            if other.unit in ("number", "share"):
                made = other.times(fixed.constant)
                made.unit = fixed.unit
                return made
        if expr.op == "/" and plain[1]:
            if right.constant:
                return left.times(1 / right.constant)
            self.found.error("RL0203", expr.span, "this divides by zero")
            return None
        message = "an expectation adds quantities, each with a factor that is a number"
        advice = "divide by none of them, and multiply no two: `cost < $0.10 * main.steps`"
        self.found.error("RL0679", expr.span, message, advice)
        return None

    def _units_fit(self, left: Found, right: _Sum, comparison: Binary) -> bool:
        unit, expr = left.quantity.unit, comparison.right
        if _NOUNS[unit] == _NOUNS[right.unit]:
            return True
        message = f"`{left.quantity.path}` is {_NOUNS[unit]}, and this is {_NOUNS[right.unit]}"
        fix: Fix | None = None
        advice = "compare it with one of its own kind"
        if unit == "money" and isinstance(expr, Number):
            fix = replace(expr.span, f"${expr.span.text}", f"write `${expr.span.text}`")
            advice = fix.title
        elif unit == "duration" and isinstance(expr, Number):
            advice = f"give a unit: `{expr.span.text}s`, `{expr.span.text}m`, `{expr.span.text}h`"
        self.found.error("RL0672", expr.span, message, advice, fix=fix)
        return False

    def _can_turn_out_either_way(
        self, plan: ExpectationPlan, left: Found, right: _Sum, comparison: Binary
    ) -> bool:
        """Report what no run can fail, or none can fulfil."""
        low, high = right.range
        ends = _ends(left.low - high, left.high - low)
        outcomes = {COMPARES[plan.op](end, 0) for end in ends}
        if outcomes == {True, False}:
            return True
        unit, path = left.quantity.unit, left.quantity.path
        spans = [amount(end, unit) for end in (left.low, left.high) if math.isfinite(end)]
        what = f"is from {' to '.join(spans)}" if len(spans) == 2 else f"is never below {spans[0]}"
        if outcomes == {True}:
            message = f"`{path}` {what}, so this always holds"
            advice = "expect something that a bad run would not fulfil"
            self.found.warning("RL0677", comparison.span, message, advice)
            return True
        message, advice = f"`{path}` {what}, so this can never hold", "no run would pass"
        expr = comparison.right
        fix: Fix | None = None
        if unit == "share" and isinstance(expr, Number) and 1 < expr.value <= 100:
            fix = replace(expr.span, f"{expr.span.text}%", f"write `{expr.span.text}%`")
            advice = f"a share is a number up to 1, or in percent: `{expr.span.text}%`"
        self.found.error("RL0676", comparison.span, message, advice, fix=fix)
        return False


def _ends(low: float, high: float) -> Sequence[float]:
    """The ends of a range of differences, and whether 0 is among them."""
    return [low, high, *([0.0] if low < 0 < high else [])]
