"""Expectations: what their paths name, how they are read, and whether they pass beforehand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeGuard, get_args

from rlc.catalog import DECLARATIONS, Param, find_metric, measurable, metrics_of
from rlc.check.evaluate import Evaluator
from rlc.check.scalars import NUMBERS, describe
from rlc.check.scope import closest, known_values, rename
from rlc.check.stages import CheckedStage
from rlc.lang import (
    Attribute,
    Binary,
    Diagnostics,
    Expectation,
    Expr,
    Label,
    Name,
    Negative,
    Number,
    Span,
    format_expression,
    replace,
)
from rlc.plan import (
    COMPARES,
    ExpectationPlan,
    Over,
    QuantityPlan,
    TermPlan,
    Unit,
    amount,
    show,
    shown,
    unit_of,
)
from rlc.plan.leaves import leaves
from rlc.pricing import ESTIMATES, JOB, EstimatedQuantities, values_of
from rlc.records import define, field, frozen

_OVERS = get_args(Over)


@frozen(eq=False)
class NamedQuantity:
    """A quantity that a path names, where it is written, and the range of what it can be."""

    quantity: QuantityPlan
    span: Span
    low: float = -math.inf
    high: float = math.inf


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(expr: Expr) -> tuple[Name, ...]:
    if isinstance(expr, Attribute):
        return *_names(expr.value), expr.attr
    return (expr,) if isinstance(expr, Name) else ()


_RIGHT = Param("the right side", "any", "a number")
_UNITS: Mapping[str, Unit] = {"money": "money", "duration": "duration"}
_NOUNS = {"number": "a number", "share": "a number", "money": "an amount of money"}
_NOUNS["duration"] = "a duration"


@frozen(eq=False)
class CheckedExpectation:
    """An expectation whose words are all understood, and where it is written."""

    plan: ExpectationPlan
    span: Span

    @property
    def stages(self) -> frozenset[str]:
        """The stages of its quantities."""
        return frozenset(one.stage for one in self.plan.quantities if one.stage is not None)


def check_expectations(
    written: Iterable[Expectation],
    evaluator: Evaluator,
    stages: Mapping[str, CheckedStage],
    found: Diagnostics,
) -> tuple[CheckedExpectation, ...]:
    """Return the expectations that can be read, after a report of what is wrong with the others."""
    reader, known = ExpectationReader(evaluator, stages, found), dict[str, CheckedExpectation]()
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


@define(eq=False)
class _Sum:
    """A side of a comparison: a number, and quantities with their factors."""

    unit: Unit
    constant: float = 0.0
    terms: list[tuple[float, NamedQuantity]] = field(factory=list)

    def times(self, factor: float) -> _Sum:
        terms = [(factor * own, found) for own, found in self.terms]
        return _Sum(self.unit, factor * self.constant, terms)

    def plus(self, other: _Sum) -> _Sum:
        unit: Unit = "share" if "share" in (self.unit, other.unit) else self.unit
        return _Sum(unit, self.constant + other.constant, [*self.terms, *other.terms])

    @property
    def range(self) -> tuple[float, float]:
        """The least and the greatest value that it can have."""
        ends = [sorted((k * found.low, k * found.high)) for k, found in self.terms if k]
        low, high = (self.constant + sum(end[i] for end in ends) for i in (0, 1))
        return low, high


@frozen(eq=False)
class ExpectationReader:
    """``stages`` are the declared ones that run."""

    evaluator: Evaluator
    stages: Mapping[str, CheckedStage]
    found: Diagnostics

    def read(self, decl: Expectation) -> CheckedExpectation | None:
        """Return what is expected; None after a report."""
        comparison = decl.comparison
        assert isinstance(comparison.left, Name | Attribute)
        if not self._is_path(comparison.left):
            span = comparison.left.span
            message = f"`{span.text}` is a param, of which everything is known already"
            advice = "name the value that it decides, such as `main.optimizer.learning_rate`"
            self.found.error("RL0671", span, message, advice)
            return None
        left = self.find(comparison.left)
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
                pair = (one, left) if plan.after else (left, one)
                early, late = (f"`{each.quantity.path}`" for each in pair)
                message = f"{early} is known before the run, {late} only after it"
                label = Label(one.span, "at another time")
                advice = "compare what is known at the same time: two expectations may say it"
                self.found.error("RL0673", comparison.span, message, advice, label)
                return None
        if not self._can_turn_out_either_way(plan, left, right, comparison):
            return None
        return CheckedExpectation(plan, comparison.span)

    def _sum(self, expr: Expr) -> _Sum | None:
        match expr:
            case Name() | Attribute() if self._is_path(expr):
                one = self.find(expr)
                return None if one is None else _Sum(one.quantity.unit, 0.0, [(1.0, one)])
            case Negative():
                inner = self._sum(expr.operand)
                return None if inner is None else inner.times(-1)
            case Binary(op="+" | "-" | "*" | "/"):
                left, right = self._sum(expr.left), self._sum(expr.right)
                if left is None or right is None:
                    return None
                return self._computed(expr, left, right)
        value = self.evaluator.scalars.plain(expr, _RIGHT)
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
            message = f"cannot apply `{expr.op}` to {_NOUNS[left.unit]} and {_NOUNS[right.unit]}"
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

    def _units_fit(self, left: NamedQuantity, right: _Sum, comparison: Binary) -> bool:
        unit, expr = left.quantity.unit, comparison.right
        if _NOUNS[unit] == _NOUNS[right.unit]:
            return True
        message = f"`{left.quantity.path}` is {_NOUNS[unit]}, and this is {_NOUNS[right.unit]}"
        fix, advice = None, "compare it with one of its own kind"
        if unit == "money" and isinstance(expr, Number):
            fix = replace(expr.span, f"${expr.span.text}", f"write `${expr.span.text}`")
            advice = fix.title
        elif unit == "duration" and isinstance(expr, Number):
            advice = f"give a unit: `{expr.span.text}s`, `{expr.span.text}m`, `{expr.span.text}h`"
        self.found.error("RL0672", expr.span, message, advice, fix=fix)
        return False

    def _can_turn_out_either_way(
        self, plan: ExpectationPlan, left: NamedQuantity, right: _Sum, comparison: Binary
    ) -> bool:
        """Return whether runs can pass and fail; report if not."""
        low, high = left.low - right.range[1], left.high - right.range[0]  # of their difference
        ends = [low, high, *([0.0] if low < 0 < high else [])]
        outcomes = {COMPARES[plan.op](end, 0) for end in ends}
        if outcomes == {True, False}:
            return True
        unit, path = left.quantity.unit, left.quantity.path
        spans = [amount(end, unit) for end in (left.low, left.high) if math.isfinite(end)]
        what = f"is from {' to '.join(spans)}" if len(spans) == 2 else f"is never below {spans[0]}"
        if outcomes == {True}:
            message = f"`{path}` {what}, so this always passes"
            advice = "expect something that a bad run would not fulfil"
            self.found.warning("RL0677", comparison.span, message, advice)
            return True
        message, advice = f"`{path}` {what}, so this can never pass", "no run would pass"
        expr, fix = comparison.right, None
        if unit == "share" and isinstance(expr, Number) and 1 < expr.value <= 100:
            fix = replace(expr.span, f"{expr.span.text}%", f"write `{expr.span.text}%`", False)
            advice = f"a share is a number up to 1, or in percent: `{expr.span.text}%`"
        self.found.error("RL0676", comparison.span, message, advice, fix=fix)
        return False

    def _is_path(self, expr: Expr) -> bool:
        """Return whether an expression names something of the job, and not a param."""
        if isinstance(expr, Name):
            decl = self.evaluator.scope.decls.get(expr.id)
            return decl is None or decl.kind.id != "param"
        return isinstance(expr, Attribute)

    def find(self, expr: Name | Attribute) -> NamedQuantity | None:
        """Return what a path names; None after a report, here or of the stage that it names."""
        head, *rest = names = _names(expr)
        inside, scope = ".".join(name.id for name in rest), self.evaluator.scope
        if head.id in scope.unread:
            return None
        decl = scope.decls.get(head.id)
        if decl is None and head.id == JOB:
            if inside in ESTIMATES:
                path, unit = f"{JOB}.{inside}", ESTIMATES[inside].unit
                quantity = QuantityPlan(path, "estimate", None, inside, unit)
                return NamedQuantity(quantity, expr.span)
            self._report_unknown(expr, [f"{JOB}.{name}" for name in ESTIMATES], "the whole job")
            return None
        if head.id in self.stages:
            return self._of_stage(expr, self.stages[head.id], inside)
        if decl is not None and decl.kind.id == "model":
            return self._of_model(expr, head.id, inside)
        others = [*self.stages, *scope.of_kind("model"), JOB]
        message = f"there is no stage `{head.id}`"
        if decl is not None:
            message = f"`{head.id}` is no stage and no model, so nothing is known of it"
        advice, fix = known_values(others, head.id), rename(head.span, head.id, others)
        if len(names) == 1 and decl is None:
            advice = f"an expectation is of a stage: `{others[0]}.…`"
        if f"{head.id}.{inside}" in ESTIMATES:
            advice = f"of the whole job it is `{JOB}.{head.id}.{inside}`"
        self.found.error("RL0671", head.span, message, advice, fix=fix)
        return None

    def _of_stage(self, expr: Expr, stage: CheckedStage, inside: str) -> NamedQuantity | None:
        name, kind = stage.name, stage.decl.kind.id
        fields = DECLARATIONS[kind].fields
        if inside in ESTIMATES:
            unit = ESTIMATES[inside].unit
            quantity = QuantityPlan(f"{name}.{inside}", "estimate", name, inside, unit)
            return NamedQuantity(quantity, expr.span, 0)
        if not stage.complete:  # what it lacks may be what is named
            parts = *(one.name for one in fields), "after", "envs", "name"
            metrics = measurable(kind)
            may_be = (*parts, *metrics)
            if not any(fnmatchcase(inside, each) for one in may_be for each in (one, f"{one}.*")):
                known = [f"{name}.{one}" for one in (*metrics, *ESTIMATES)]
                self._report_unknown(expr, known, f"`{name}`")
            return None
        plan = stage.plan()
        values = values_of(plan)
        if inside in values:
            ends = next(((one.low, one.high) for one in fields if one.name == inside), (None, None))
            return self._value(expr, f"{name}.{inside}", name, inside, values[inside], *ends)
        over: Over = "last"
        measured, (beginning, _, last) = find_metric(plan, inside), inside.rpartition(".")
        if measured is None and last in _OVERS:
            measured, over = find_metric(plan, beginning), last  # type: ignore[assignment]
        if measured is not None:
            unit = "number" if over == "sum" and measured.unit == "share" else measured.unit
            path = f"{name}.{measured.name}" + (f".{over}" if over != "last" else "")
            quantity = QuantityPlan(path, "metric", name, measured.key, unit, over)
            low, high = measured.low, measured.high
            if over == "sum":
                low, high = (0 if low >= 0 else -math.inf), math.inf
            return NamedQuantity(quantity, expr.span, low, high)
        numbers = [path for path, value in values.items() if _is_number(value)]
        known = [f"{name}.{what}" for what in (*metrics_of(plan), *ESTIMATES, *numbers)]
        if find_metric(plan, beginning) and not closest(format_expression(expr), known):
            message = f"`{name}.{beginning}` has no `{last}`"
            overs = ", ".join(f"`.{over}`" for over in _OVERS)
            advice = f"over the steps it has {overs}; alone it is the last"
            self.found.error("RL0670", expr.span, message, advice)
        else:
            self._report_unknown(expr, known, f"`{name}`")
        return None

    def _of_model(self, expr: Expr, model: str, inside: str) -> NamedQuantity | None:
        """Return a value of a declared model, which every stage on it has."""
        for stage in self.stages.values():
            if "model" in stage.parts and stage.parts["model"].name == model:
                values, key = dict(leaves(stage.parts["model"], "model")), f"model.{inside}"
                if key in values:
                    return self._value(expr, f"{model}.{inside}", stage.name, key, values[key])
                own = (n for n, v in values.items() if n.startswith("model.") and _is_number(v))
                known = [f"{model}{name.removeprefix('model')}" for name in own]
                self._report_unknown(expr, known, f"`{model}`")
                return None
        if all(stage.complete for stage in self.stages.values()):
            message = f"no stage is on `{model}`, so nothing is known of it"
            advice = known_values([*self.stages, JOB])
            self.found.error("RL0671", expr.span, message, advice)
        return None

    def _value(
        self,
        expr: Expr,
        path: str,
        stage: str,
        key: str,
        value: object,
        low: float | None = None,
        high: float | None = None,
    ) -> NamedQuantity | None:
        if _is_number(value):
            unit = unit_of(key) or "number"
            quantity = QuantityPlan(path, "value", stage, key, unit)  # type: ignore[arg-type]
            ends = (-math.inf if low is None else low), (math.inf if high is None else high)
            return NamedQuantity(quantity, expr.span, *ends)
        shown = "none" if value is None else show(value, "string" if isinstance(value, str) else "")
        message = f"`{path}` is {shown}, and an expectation compares numbers"
        self.found.error("RL0679", expr.span, message, "use a value of the plan that is a number")
        return None

    def _report_unknown(self, expr: Expr, known: list[str], of: str) -> None:
        path = format_expression(expr)
        message = f"nothing of {of} is called `{path}`"
        plain = [name for name in known if all(map(str.isidentifier, name.split(".")))]
        # Names of one beginning belong together, and what ends alike is likely meant.
        beginning, ending = ".".join(path.split(".")[:2]), path.rpartition(".")[2]
        plain = [name for name in plain if name.startswith(f"{beginning}.")] or plain
        alike = [f"`{name}`" for name in plain if name.endswith(f".{ending}")]
        advice, fix = known_values(plain, path), rename(expr.span, path, plain)
        if alike and fix is None:
            advice = f"did you mean {' or '.join(alike[:2])}?"
        self.found.error("RL0670", expr.span, message, advice, fix=fix)


def report_expectations(
    expectations: Sequence[CheckedExpectation],
    stages: Sequence[CheckedStage],
    recipe: str,
    found: Diagnostics,
) -> None:
    """Report expectations that do not hold before the run, and those that cannot be checked."""
    known = [one for one in expectations if not one.plan.after]
    if not known:
        return
    origins = {stage.name: stage.origins for stage in stages}
    estimated = EstimatedQuantities(tuple(stage.plan() for stage in stages), recipe)
    for one in known:
        judged, unit = one.plan.judged(estimated.value), one.plan.quantity.unit
        if judged.holds is None:
            unknown = next(q for q in one.plan.quantities if estimated.value(q) is None)
            if unknown.key.startswith("audit"):
                message = f"`{unknown.path}` is not known: not all environments are audited"
                advice = f"`rlc audit {recipe}` audits them, as they are now"
                found.error("RL0674", one.span, message, advice)
                continue
            message = f"`{unknown.path}` is not known, so this expectation is not checked"
            advice = "not all of its prices are known; `rlc explain` shows which"
            if not unknown.key.startswith("cost"):
                advice = "the batch counts turns, and an episode may have any number of them"
            found.warning("RL0675", one.span, message, advice)
        elif judged.found is None:
            one_of = next(q for q in one.plan.quantities if math.isinf(estimated.value(q) or 0))
            names = " and ".join(f"`{name}`" for name in estimated.endless(one_of))
            message = f"`{one_of.path}` has no bound: nothing limits the turns of {names}"
            advice = f"give {names} a limit: `|> rollouts(max_turns = 10)`"
            found.error("RL0674", one.span, message, advice)
        elif not judged.holds:
            assert judged.expected is not None
            message = (
                f"`{one.plan.quantity.path}` is {shown(judged.found, unit)}, where "
                f"`{one.plan.op} {shown(judged.expected, unit)}` is expected"
            )
            values = [quantity for quantity in one.plan.quantities if quantity.kind == "value"]
            places = [origins[value.stage or ""].at(value.key) for value in values[:1]]
            parts = sorted(estimated.parts(one.plan.quantity).items(), key=lambda part: -part[1])
            advice = "change the value, or what is expected of it"
            if any(quantity.key.startswith("audit") for quantity in one.plan.quantities):
                advice = f"`rlc audit {recipe}` shows them, and what to do"
            if parts:
                largest = ", ".join(f"{kind} {shown(number, unit)}" for kind, number in parts[:4])
                advice = f"{largest}; `rlc explain` shows what it is made of"
            labels = [Label(place, "its value") for place in places]
            found.error("RL0674", one.span, message, advice, *labels)
