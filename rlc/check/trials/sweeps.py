"""Sweeps: their fields bound, and what they name found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import floor, inf
from typing import Any

from rlc.catalog import DECLARATIONS, EVAL, STAGES, SWEEP, TRAINING, metric_name, watched
from rlc.check.amendments import names_in, names_of
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator
from rlc.check.rules.tasks import has_tasks_of
from rlc.check.scalars import describe, report_misfit
from rlc.check.scope import known_values, rename
from rlc.check.stages import CheckedStage
from rlc.check.values import Origins, Value, settle
from rlc.lang import (
    Attribute,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Label,
    ListExpr,
    Name,
    RecordExpr,
    Span,
)
from rlc.plan import BudgetPlan, MeasurePlan, RangePlan, SearchPlan, metric_label, metric_word
from rlc.records import evolve, frozen

_DUE_AT = ("eval/", "heldout/")  # what is measured every so many steps, and not after each


@frozen(eq=False)
class Axis:
    """An axis: the names of its path, and the expressions of its values, or a range. ``span`` is
    the place of its name, ``place`` that of its values."""

    path: tuple[Name, ...]
    span: Span
    place: Span
    values: tuple[Expr, ...]
    range: RangePlan | None

    @property
    def name(self) -> str:
        return ".".join(name.id for name in self.path)

    @property
    def size(self) -> float:
        """The number of values to try; infinity for a range without steps."""
        if self.range is None:
            return len(self.values)
        step = self.range.step or (1 if self.range.whole else 0)
        width = self.range.high - self.range.low
        return floor(width / step + 1e-9) + 1 if step else inf


@frozen(eq=False)
class CheckedSweep:
    """A sweep that can be read. Its values have not been tried yet."""

    decl: BlockDecl
    of: str
    axes: tuple[Axis, ...]
    seeds: int
    metric: MeasurePlan
    search: SearchPlan
    budget: BudgetPlan
    origins: Origins

    @property
    def name(self) -> str:
        return self.decl.name.id


@frozen(eq=False)
class SweepChecker:
    """Checks the sweep of a declaration, which is of some of the ``stages``."""

    decl: BlockDecl
    evaluator: Evaluator
    stages: Mapping[str, CheckedStage]
    found: Diagnostics

    def checked(self) -> CheckedSweep | None:
        """Return the sweep; None after a report."""
        decl = self.decl
        owner = Owner(SWEEP, "a `sweep`", "field", decl.name.span, unread=decl.unread)
        bound = bind(decl.fields, DECLARATIONS[SWEEP].fields, owner, self._value, self.found)
        stage = self.stages.get(bound.values["of"].data) if "of" in bound.values else None
        if stage is None or not (bound.complete and stage.complete):
            return None
        if self._evaluations_are_wrong(stage, bound.values["metric"].data):
            return None
        metric = self._metric(stage, bound.values["metric"])
        if metric is None:
            return None
        values = {**bound.values, "metric": evolve(bound.values["metric"], data=metric)}
        parts = {name: settle(value) for name, value in values.items() if name != "over"}
        parts["search"] = search = parts["search"] or SearchPlan("grid", None)
        evaluation = self.stages[metric.stage]
        if search.eta is not None and search.first is None:
            due = metric.key.startswith(_DUE_AT)
            every = evaluation.parts.get("every") if due else None
            parts["search"] = evolve(search, first=every or 1)
        axes: tuple[Axis, ...] = values["over"].data
        checked = CheckedSweep(decl, axes=axes, origins=Origins(decl.name.span, values), **parts)
        if checked.seeds == 1 and all(axis.size == 1 for axis in axes):
            message = "this sweep has one configuration and one seed, so it compares nothing"
            advice = "list more values, or use `seeds = 3` to see how far runs differ by chance"
            self.found.warning("RL0601", axes[0].place, message, advice)
        return checked if self._search_fits(checked, evaluation) else None

    def _value(self, expr: Expr, want: Any) -> Value | None:
        """Evaluate a field. What a metric names is looked up once the stage is known."""
        match want.type:
            case "stage":
                scope, is_name = self.evaluator.scope, isinstance(expr, Name)
                decl = scope.find(expr, TRAINING, self.found) if isinstance(expr, Name) else None
                if decl is not None and decl.kind.id in TRAINING:
                    return Value("stage", decl.name.id, expr.span, expr.span)
                if decl is not None or not is_name:
                    report_misfit(expr, want, scope, self.found)
                return None
            case "axis":
                axes = self._axes(expr, want)
                return None if axes is None else Value("axis", axes, expr.span, expr.span)
            case "measure":
                return Value("measure", expr, expr.span, expr.span)
        return self.evaluator.value(expr, want)

    def _axes(self, expr: Expr, want: Any) -> tuple[Axis, ...] | None:
        advice = "for example `over = { learning_rate = [1e-5, 4e-5] }`"
        if not isinstance(expr, RecordExpr):
            message = f"`over` takes a record of values to try, found {describe(expr)}"
            self.found.error("RL0201", expr.span, message, advice)
            return None
        if not expr.fields:
            self.found.error("RL0601", expr.span, "this sweep varies nothing", advice)
        axes: dict[str, Axis] = {}
        for field in expr.fields:
            name = field.name
            path = tuple(names_of(name))
            if (first := axes.get(name.id)) is not None:
                label = Label(first.span, "first given here")
                message = f"the field `{name.id}` is given twice"
                self.found.error("RL0110", name.span, message, "keep one of them", label)
                return None
            values, sampled = self._values(name, field.value, want)
            if not values and sampled is None:
                return None
            self.evaluator.scope.used.update(n.id for value in values for n in names_in(value))
            axes[name.id] = Axis(path, name.span, field.value.span, values, sampled)
        return tuple(axes.values()) or None

    def _values(
        self, name: Name, expr: Expr, want: Any
    ) -> tuple[tuple[Expr, ...], RangePlan | None]:
        """Return the expressions of an axis, or its range; neither after a report."""
        one = evolve(want, name=name.id, named=False)
        if isinstance(expr, ListExpr):
            if not expr.items:
                message = f"there are no values to try for `{name.id}`"
                self.found.error("RL0601", expr.span, message, "list its values, or leave it out")
            return expr.items, None
        if not isinstance(expr, Call):
            report_misfit(expr, one, self.evaluator.scope, self.found)
            return (), None
        made = self.evaluator.call(expr, one)
        sampled: RangePlan | None = None if made is None else settle(made)
        if sampled is not None and sampled.low >= sampled.high:
            message = f"there is nothing between {sampled.low:g} and {sampled.high:g}"
            self.found.error("RL0601", expr.span, message, "give the smaller number first")
            return (), None
        return (), sampled

    def _evaluations_are_wrong(self, stage: CheckedStage, metric: Expr | None) -> bool:
        """Return whether an evaluation that the runs can be compared by has an error."""
        head = metric.value if isinstance(metric, Attribute) else None
        named = head.id if isinstance(head, Name) else None
        return any(
            not other.complete
            and (other.name == named if named else other.parts.get("after") in (stage.name, None))
            for other in self.stages.values()
            if other.decl.kind.id == EVAL
        )

    def _metric(self, stage: CheckedStage, given: Value) -> MeasurePlan | None:
        """Return what runs are compared by; None after a report."""
        known = {measure.name: measure for measure in _measures(stage, self.stages)}
        held_out = [measure for measure in known.values() if measure.held_out]
        if given.data is None:
            chosen: MeasurePlan | None = [*held_out, *known.values()][0]
        else:
            chosen = self._written_metric(given.data, stage, known)
        if chosen is not None and not chosen.held_out:
            message = f"the runs are compared by `{chosen.name}`, of tasks that they are trained on"
            advice = f"held out: {', '.join(f'`{measure.name}`' for measure in held_out)}"
            if not held_out:
                more = f"add `eval held_out {{ model = {stage.name}  env = … }}` on other tasks"
                if "heldout" in stage.parts and chosen.name != f"{stage.name}.reward":
                    more = f"`heldout = …` in `{stage.name}` gives `{stage.name}.heldout.loss`"
                advice = f"what wins may have learnt them by heart: {more}"
            self.found.warning("RL0606", given.span, message, advice)
        return chosen

    def _written_metric(
        self, expr: Expr, stage: CheckedStage, known: Mapping[str, MeasurePlan]
    ) -> MeasurePlan | None:
        head, rest = _path(expr)
        if head is None or not rest:
            message = f"`metric` takes a metric of a stage, found {describe(expr)}"
            self.found.error("RL0201", expr.span, message, known_values([*known]))
            return None
        scope = self.evaluator.scope
        decl = scope.find(head, (EVAL, *TRAINING), self.found)
        name = ".".join((head.id, *rest))
        if decl is None:
            return None
        if (measure := known.get(name)) is not None:
            return measure
        message = f"`{head.id}` has no metric `{'.'.join(rest)}`"
        advice = known_values([*known], name)
        if (other := self.stages.get(head.id)) is None:
            message = f"`{head.id}` is no stage, and has no metrics"
        elif other is not stage and other.parts.get("after") != stage.name:
            message = f"`{head.id}` does not evaluate `{stage.name}`, which is what is tried"
        fix = rename(expr.span, name, [*known])
        self.found.error("RL0602", expr.span, message, advice, fix=fix)
        return None

    def _search_fits(self, sweep: CheckedSweep, evaluation: CheckedStage) -> bool:
        search, kind = sweep.search, sweep.search.kind
        endless = next((axis for axis in sweep.axes if axis.range is not None), None)
        if endless is not None and search.n is None:
            message = f"`{kind}()` tries every value of `{endless.name}`, and a range has no list"
            some = "random(20)" if search.eta is None else f"{kind}(n = 20)"
            advice = f"list its values, or draw some: `search = {some}`"
            self.found.error("RL0604", endless.place, message, advice)
            return False
        is_due = sweep.metric.key.startswith(_DUE_AT)
        if search.eta is not None and is_due and evaluation.parts["every"] is None:
            message = (
                f"`{kind}()` compares runs on their way, and `{evaluation.name}` is at the end"
            )
            label = Label(evaluation.decl.name.span, "has no `every`")
            advice = f"for example `every = 20` in `{evaluation.name}`"
            self.found.error("RL0607", sweep.origins.at("search"), message, advice, label)
            return False
        return True


def _path(expr: Expr) -> tuple[Name | None, list[str]]:
    if isinstance(expr, Attribute):
        head, rest = _path(expr.value)
        return head, [*rest, expr.attr.id]
    return (expr if isinstance(expr, Name) else None), []


def _measures(stage: CheckedStage, stages: Mapping[str, CheckedStage]) -> Iterator[MeasurePlan]:
    """Yield what runs of a stage can be compared by, the metrics of its evaluations first."""
    trained = list(_trained(stage, stages))
    for other in stages.values():
        if other.decl.kind.id != EVAL or other.parts.get("after") != stage.name:
            continue
        held_out = not any(
            has_tasks_of(env, one) for env in other.parts.get("envs", ()) for one in trained
        )
        for metric in other.parts.get("metrics", ()):
            name, key = f"{other.name}.{metric_word(metric)}", metric_label(metric)
            yield MeasurePlan(name, other.name, f"eval/{other.name}/{key}", True, held_out)
    usual = STAGES[stage.decl.kind.id].watched
    about = watched(stage.plan()) if stage.complete else usual
    found = [(one.key, one.rises, False) for one in about if not one.key.startswith(_DUE_AT)]
    if (heldout := stage.parts.get("heldout")) is not None:
        scored = [(one.held_out, one.rises, True) for one in usual]
        found += scored if heldout.compares else [("heldout/loss", False, True)]
    for key, rises, held_out in found:  # of the stage itself
        if rises is not None:
            name = f"{stage.name}.{metric_name(key)}"
            yield MeasurePlan(name, stage.name, key, rises, held_out)


def _trained(stage: CheckedStage, stages: Mapping[str, CheckedStage]) -> Iterator[Any]:
    earlier: CheckedStage | None = stage
    while earlier is not None:
        yield from earlier.parts.get("envs", ())
        if (data := earlier.parts.get("data")) is not None:
            yield from data.environments
        earlier = stages.get(earlier.parts.get("after") or "")
