"""Paths of expectations: ``main.cost.high``, ``heldout.pass_at_1``, ``policy.lora_rank``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TypeGuard, get_args

from attrs import frozen

from rlc.catalog.metrics import find_metric, metrics_of
from rlc.check.evaluate import Evaluator
from rlc.check.stages import CheckedStage
from rlc.check.suggest import closest, known_values, rename
from rlc.lang.ast import Attribute, Expr, Name
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.formatter import format_expression
from rlc.lang.source import Span
from rlc.plan.expectations import Over, QuantityPlan
from rlc.plan.units import show, unit_of
from rlc.pricing.quantities import ESTIMATES, JOB, values_of

_OVERS = get_args(Over)


@frozen(eq=False, repr=False, slots=False)
class Found:
    """A quantity that a path names, where it is written, and the range of what it can be."""

    quantity: QuantityPlan
    span: Span
    low: float = -math.inf
    high: float = math.inf


@frozen(eq=False, repr=False, slots=False)
class Paths:
    """Finds what paths name. ``evaluator`` knows the declarations, ``stages`` are those of them
    that run."""

    evaluator: Evaluator
    stages: Mapping[str, CheckedStage]
    found: Diagnostics

    def is_path(self, expr: Expr) -> bool:
        """Whether an expression names something of the job, and not a param."""
        if isinstance(expr, Name):
            decl = self.evaluator.scope.decls.get(expr.id)
            return decl is None or decl.kind.id != "param"
        return isinstance(expr, Attribute)

    def find(self, expr: Name | Attribute) -> Found | None:
        """Return what a path names; None after a report, here or of the stage that it names."""
        head, *rest = names = list(_names(expr))
        inside, scope = ".".join(name.id for name in rest), self.evaluator.scope
        if head.id in scope.unread:
            return None
        decl = scope.decls.get(head.id)
        if decl is None and head.id == JOB:
            if inside in ESTIMATES:
                unit = ESTIMATES[inside].unit
                return Found(
                    QuantityPlan(f"{JOB}.{inside}", "estimate", None, inside, unit), expr.span
                )
            self._report_unknown(expr, [f"{JOB}.{name}" for name in ESTIMATES], "the whole job")
            return None
        if head.id in self.stages:
            stage = self.stages[head.id]
            return self._of_stage(expr, stage, inside) if stage.complete else None
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

    def _of_stage(self, expr: Expr, stage: CheckedStage, inside: str) -> Found | None:
        plan, name = stage.plan(), stage.name
        if inside in ESTIMATES:
            unit = ESTIMATES[inside].unit
            quantity = QuantityPlan(f"{name}.{inside}", "estimate", name, inside, unit)
            return Found(quantity, expr.span, 0)
        values = values_of(plan)
        if inside in values:
            return self._value(expr, f"{name}.{inside}", name, inside, values[inside])
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
            return Found(quantity, expr.span, low, high)
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

    def _of_model(self, expr: Expr, model: str, inside: str) -> Found | None:
        """A value of a declared model, which every stage on it has."""
        for stage in self.stages.values():
            if stage.complete and stage.parts["model"].name == model:
                values, key = values_of(stage.plan()), f"model.{inside}"
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

    def _value(self, expr: Expr, path: str, stage: str, key: str, value: object) -> Found | None:
        if _is_number(value):
            unit = unit_of(key) or "number"
            quantity = QuantityPlan(path, "value", stage, key, unit)  # type: ignore[arg-type]
            return Found(quantity, expr.span, value, value)
        shown = "none" if value is None else show(value, "string" if isinstance(value, str) else "")
        message = f"`{path}` is {shown}, and an expectation compares numbers"
        self.found.error("RL0679", expr.span, message, "take a value of the plan that is a number")
        return None

    def _report_unknown(self, expr: Expr, known: list[str], of: str) -> None:
        path = format_expression(expr)
        message = f"nothing of {of} is called `{path}`"
        plain = [name for name in known if all(map(str.isidentifier, name.split(".")))]
        # Names of one beginning belong together, and what ends alike is likely meant.
        beginning, ending = ".".join(path.split(".")[:2]), path.rpartition(".")[2]
        plain = [name for name in plain if name.startswith(f"{beginning}.")] or plain
        alike = [name for name in plain if name.endswith(f".{ending}")]
        advice, fix = known_values(plain, path), rename(expr.span, path, plain)
        if alike and fix is None:
            advice = f"did you mean {' or '.join(f'`{name}`' for name in alike[:2])}?"
        self.found.error("RL0670", expr.span, message, advice, fix=fix)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _names(expr: Expr) -> Iterator[Name]:
    if isinstance(expr, Attribute):
        yield from _names(expr.value)
        yield expr.attr
    elif isinstance(expr, Name):
        yield expr
