"""Claims about sweeps: which configurations they compare, and whether runs can decide them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlc.catalog import AT, CLAIM, DECLARATIONS, SWEEP, Param, find_metric
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator
from rlc.check.scalars import NUMBERS, describe, report_misfit
from rlc.check.scope import known_values, rename
from rlc.check.stages import CheckedStage
from rlc.check.trials.sweeps import Axis, CheckedSweep
from rlc.check.values import Origins, Value, settle
from rlc.lang import (
    Argument,
    Attribute,
    Binary,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Fix,
    Label,
    Name,
    Negative,
    Number,
    Quantity,
    Span,
    format_expression,
    replace,
)
from rlc.plan import ClaimPlan, ClaimTerm, Configuration, amount
from rlc.records import define, evolve, field, frozen

_ORDERS = {">": True, ">=": True, "<": False, "<=": False}
_PLAIN = Param("a number", "any", "a number")
_EXAMPLE = "for example `that = at(rate == 1e-4) >= at(rate == 1e-5) - 2%`"


@frozen(eq=False)
class CheckedClaim:
    """A claim that runs can decide, and the name of its sweep."""

    decl: BlockDecl
    of: str
    plan: ClaimPlan


@define(eq=False)
class _Sum:
    """A side of a comparison: a number, and configurations with their factors. ``percent``: where
    a part of the number is written in percent."""

    constant: float = 0.0
    percent: Span | None = None
    terms: list[tuple[float, Configuration]] = field(factory=list)

    def times(self, factor: float) -> _Sum:
        terms = [(factor * own, configuration) for own, configuration in self.terms]
        return _Sum(factor * self.constant, self.percent, terms)

    def plus(self, other: _Sum) -> _Sum:
        percent = self.percent or other.percent
        return _Sum(self.constant + other.constant, percent, [*self.terms, *other.terms])


def check_claims(
    written: Sequence[BlockDecl],
    evaluator: Evaluator,
    sweeps: Iterable[CheckedSweep],
    stages: Mapping[str, CheckedStage],
    found: Diagnostics,
) -> tuple[CheckedClaim, ...]:
    """Return the claims that runs can decide, after a report of what is wrong with the others."""
    by_name, known = {sweep.name: sweep for sweep in sweeps}, dict[str, CheckedClaim]()
    for decl in written:
        one = _Reader(decl, evaluator, by_name, stages, found).read(len(written))
        if one is None:
            continue
        first = known.setdefault(f"{one.of} {evolve(one.plan, name='', text='')}", one)
        if first is not one:
            label = Label(first.decl.name.span, "the first time")
            message = f"`{decl.name.id}` claims the same as `{first.plan.name}`"
            advice = "keep one of them: of several claims each has to be shown more clearly"
            found.warning("RL0886", decl.name.span, message, advice, label)
    claims = tuple(known.values())
    for one in claims:
        _report_margin(one, claims, by_name[one.of], found)
    return claims


def _report_margin(
    one: CheckedClaim, claims: Sequence[CheckedClaim], sweep: CheckedSweep, found: Diagnostics
) -> None:
    """Warn of a margin by which the left side may be better, unless another claim says that it may
    not be worse by some other: together they say that two are close."""
    plan, more = one.plan, sweep.metric.more_is_better
    gained = plan.limit if more else -plan.limit
    both = any(c.plan.terms == plan.terms and c.plan.above != plan.above for c in claims)
    if both or len(plan.terms) < 2 or gained <= 0 or plan.above == more:
        return
    better, form = ("more", ">= … -") if more else ("less", "<= … +")
    message = f"of `{sweep.metric.name}` {better} is better, and this lets the left side be better"
    advice = f"to say that it is no worse write `{form}`"
    found.warning("RL0887", one.decl.name.span, message, advice)


@frozen(eq=False)
class _Reader:
    decl: BlockDecl
    evaluator: Evaluator
    sweeps: Mapping[str, CheckedSweep]
    stages: Mapping[str, CheckedStage]
    found: Diagnostics

    def read(self, among: int) -> CheckedClaim | None:
        """Return the claim, ``among`` so many of its recipe; None after a report."""
        decl = self.decl
        owner = Owner(CLAIM, "a `claim`", "field", decl.name.span, unread=decl.unread)
        bound = bind(decl.fields, DECLARATIONS[CLAIM].fields, owner, self._value, self.found)
        sweep = self.sweeps.get(bound.values["of"].data) if "of" in bound.values else None
        if sweep is None or not bound.complete or not self._can_compare(sweep):
            return None
        that: Expr = bound.values["that"].data
        if not (isinstance(that, Binary) and that.op in _ORDERS):
            self._report_form(that)
            return None
        left, right = self._sum(that.left, sweep), self._sum(that.right, sweep)
        if left is None or right is None:
            return None
        whole = left.plus(right.times(-1))
        terms = _joined(whole.terms)
        if not terms:
            message = "both sides name the same runs, so no run can decide this"
            if not whole.terms:
                message = "this names no configuration of the sweep"
            self.found.error("RL0885", that.span, message, _EXAMPLE)
            return None
        plan = ClaimPlan(
            decl.name.id,
            format_expression(that),
            tuple(terms),
            _ORDERS[that.op],
            0.0 - whole.constant,
            settle(bound.values["level"]),
            settle(bound.values["early"]),
            among,
            "number",
        )
        fitting = self._fitting(plan, whole, that, sweep)
        return None if fitting is None else CheckedClaim(decl, sweep.name, fitting)

    def _value(self, expr: Expr, want: Any) -> Value | None:
        match want.type:
            case "sweep":
                scope = self.evaluator.scope
                decl = scope.find(expr, (SWEEP,), self.found) if isinstance(expr, Name) else None
                if decl is not None and decl.kind.id == SWEEP:
                    return Value("sweep", decl.name.id, expr.span, expr.span)
                if decl is not None or not isinstance(expr, Name):
                    report_misfit(expr, want, scope, self.found)
                return None
            case "comparison":
                return Value("comparison", expr, expr.span, expr.span)
        return self.evaluator.value(expr, want)

    def _can_compare(self, sweep: CheckedSweep) -> bool:
        """Return whether a sweep has paired runs of known configurations; report if not."""
        name, place = sweep.name, next(f for f in self.decl.fields if f.name.id == "of").value.span
        origins: Origins = sweep.origins
        if sweep.search.n is not None or sweep.search.eta is not None:
            label = Label(origins.at("search"), "its search")
            message = f"`{name}` does not run all of its configurations with all of its seeds"
            advice = "a claim is about those of a `grid()`: list the values that it compares"
            self.found.error("RL0882", place, message, advice, label)
            return False
        if sweep.seeds < 2:
            label = Label(origins.at("seeds"), "its seeds")
            message = f"`{name}` has one seed, and how far seeds differ decides every claim"
            advice = f"`seeds = 5` in `{name}` is a beginning; `rlc explain` says what is seen then"
            self.found.error("RL0883", place, message, advice, label)
            return False
        return True

    def _report_form(self, that: Expr) -> None:
        message = f"a claim compares configurations, found {describe(that)}"
        advice = _EXAMPLE
        if isinstance(that, Binary) and that.op in ("==", "!="):
            message = "no number of seeds shows that two means are equal"
            advice = "say how close they are: one claim `>= … - 2%`, and another one `<= … + 2%`"
            if that.op == "!=":
                message = "this says that two means differ, and not which one is larger"
                advice = "say it with `>` or `<`: what turns out the other way does not hold then"
            self.found.error("RL0885", that.span, message, advice)
            return
        self.found.error("RL0880", that.span, message, advice)

    def _sum(self, expr: Expr, sweep: CheckedSweep) -> _Sum | None:
        match expr:
            case Call(func=Name(id=name)) if name == AT:
                configuration = self._configuration(expr, sweep)
                return None if configuration is None else _Sum(terms=[(1.0, configuration)])
            case Negative():
                inner = self._sum(expr.operand, sweep)
                return None if inner is None else inner.times(-1)
            case Binary(op="+" | "-" | "*" | "/"):
                left, right = self._sum(expr.left, sweep), self._sum(expr.right, sweep)
                return None if left is None or right is None else self._computed(expr, left, right)
        if isinstance(expr, Name | Attribute | Call) and not self._is_param(expr):
            message = f"a claim names configurations as `{AT}(…)`, found {describe(expr)}"
            self.found.error("RL0880", expr.span, message, _EXAMPLE)
            return None
        value = self.evaluator.scalars.plain(expr, _PLAIN)
        if value is None:
            return None
        if value.type not in NUMBERS:
            message = f"a claim is about numbers, found {describe(expr)}"
            self.found.error("RL0884", expr.span, message, _EXAMPLE)
            return None
        return _Sum(float(value.data), expr.span if expr.span.text.endswith("%") else None)

    def _is_param(self, expr: Expr) -> bool:
        decl = self.evaluator.scope.decls.get(expr.id) if isinstance(expr, Name) else None
        return decl is not None and decl.kind.id == "param"

    def _computed(self, expr: Binary, left: _Sum, right: _Sum) -> _Sum | None:
        if expr.op in "+-":
            return left.plus(right if expr.op == "+" else right.times(-1))
        if expr.op == "*" and not (left.terms and right.terms):
            factor, other = (right, left) if left.terms else (left, right)
            made = other.times(factor.constant)
            made.percent = other.percent or (None if other.terms else factor.percent)
            return made
        if expr.op == "/" and not right.terms:
            if right.constant:
                return left.times(1 / right.constant)
            self.found.error("RL0203", expr.span, "this divides by zero")
            return None
        message = "a claim adds configurations, each with a factor that is a number"
        advice = f"for a ratio: `{AT}(…) >= 0.9 * {AT}(…)`"
        self.found.error("RL0880", expr.span, message, advice)
        return None

    def _configuration(self, call: Call, sweep: CheckedSweep) -> Configuration | None:
        """Return the one configuration that `at(…)` names; None after a report."""
        axes, texts = {axis.name: axis for axis in sweep.axes}, dict[str, str]()
        for argument in call.args:
            condition = self._condition(argument)
            if condition is None:
                return None
            path, value = condition
            name = format_expression(path)
            if (axis := axes.get(name)) is None:
                message = f"`{sweep.name}` does not vary `{name}`"
                fix = rename(path.span, name, [*axes])
                advice = known_values([*axes], name)
                self.found.error("RL0881", path.span, message, advice, fix=fix)
                return None
            if name in texts:
                self.found.error("RL0881", path.span, f"`{name}` is given twice", "keep one")
                return None
            self.found.note("attribute" if isinstance(path, Attribute) else "key", path.span)
            if (text := _tried(value, axis)) is None:
                label = Label(axis.place, "its values")
                message = f"`{sweep.name}` does not try `{name}` with {value.span.text}"
                advice = known_values([format_expression(each) for each in axis.values])
                self.found.error("RL0881", value.span, message, advice, label)
                return None
            texts[name] = text
        open_axes = [axis for axis in sweep.axes if axis.name not in texts]
        if wrong := [axis for axis in open_axes if axis.size > 1]:
            names = " and ".join(f"`{axis.name}`" for axis in wrong)
            message = f"`{AT}(…)` names one configuration, and leaves {names} open"
            more = ", ".join(
                f"{axis.name} == {format_expression(axis.values[0])}" for axis in wrong
            )
            label = Label(wrong[0].place, "one of these")
            self.found.error("RL0881", call.span, message, f"add for example `{more}`", label)
            return None
        texts |= {axis.name: format_expression(axis.values[0]) for axis in open_axes}
        return {axis.name: texts[axis.name] for axis in sweep.axes}

    def _condition(self, argument: Argument) -> tuple[Name | Attribute, Expr] | None:
        """Return the path and the value of `path == value`; None after a report."""
        fix = None
        match argument:
            case Argument(
                name=None, value=Binary(op="==", left=Name() | Attribute() as path) as one
            ):
                return path, one.right
        advice = f"`{AT}(learning_rate == 1e-4)`: the paths and values are those of `over`"
        if argument.name is not None:
            fix = _as_condition(argument)
            advice = fix.title
        message = f"`{AT}` takes conditions such as `rate == 1e-4`, found {argument.span.text}"
        self.found.error("RL0880", argument.span, message, advice, fix=fix)
        return None

    def _fitting(
        self, plan: ClaimPlan, whole: _Sum, that: Binary, sweep: CheckedSweep
    ) -> ClaimPlan | None:
        """Return the claim with the unit of the metric, if they go together and runs can turn out
        either way; None after a report."""
        metric = sweep.metric
        name = metric.name.removeprefix(f"{metric.stage}.")
        known = find_metric(self.stages[metric.stage].plan(), name)
        low, high = (known.low, known.high) if known else (-math.inf, math.inf)
        unit = known.unit if known else "number"
        if whole.percent is not None and unit != "share":
            message = f"`{metric.name}` is no share, so a percentage says nothing of it"
            text = f"{float(whole.percent.text.removesuffix('%').replace('_', '')) / 100:g}"
            fix = replace(whole.percent, text, f"write `{text}`", False)
            self.found.error(
                "RL0884", whole.percent, message, f"{fix.title}, in its own unit", fix=fix
            )
            return None
        plan, sign = evolve(plan, unit=unit), 1 if plan.above else -1
        ends = [sorted((sign * t.factor * low, sign * t.factor * high)) for t in plan.terms]
        least, most = (math.fsum(end[i] for end in ends) - sign * plan.limit for i in (0, 1))
        if least >= 0 or most <= 0:
            spans = f"from {amount(low, unit)} to {amount(high, unit)}"
            if not math.isfinite(high):
                spans = f"never below {amount(low, unit)}"
            outcome = "always holds" if least >= 0 else "can never hold"
            message = f"`{metric.name}` is {spans}, so this {outcome}"
            self.found.error("RL0885", that.span, message, "claim what runs can decide")
            return None
        return plan


def _joined(terms: Iterable[tuple[float, Configuration]]) -> list[ClaimTerm]:
    """Return one term for each configuration that counts."""
    factors: dict[tuple[str, ...], float] = {}
    configurations: dict[tuple[str, ...], Configuration] = {}
    for factor, configuration in terms:
        key = tuple(configuration.values())
        factors[key] = factors.get(key, 0.0) + factor
        configurations[key] = configuration
    return [ClaimTerm(factor, configurations[key]) for key, factor in factors.items() if factor]


def _tried(value: Expr, axis: Axis) -> str | None:
    """Return how the axis writes a value, or None if it does not try it."""
    given = _number(value)
    for each in axis.values:
        text = format_expression(each)
        if text == format_expression(value) or (given is not None and given == _number(each)):
            return text
    return None


def _number(expr: Expr) -> tuple[str, float] | None:
    """Return the unit and the size of a number that is written out."""
    if isinstance(expr, Negative):
        inner = _number(expr.operand)
        return None if inner is None else (inner[0], -inner[1])
    if isinstance(expr, Quantity):
        return ("", expr.value / 100) if expr.unit == "%" else (expr.unit, expr.value)
    return ("", expr.value) if isinstance(expr, Number) else None


def _as_condition(argument: Argument) -> Fix:
    assert argument.name is not None
    text = f"{argument.name.id} == {argument.value.span.text}"
    return replace(argument.span, text, f"write `{text}`")
