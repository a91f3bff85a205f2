"""What is wrong with the values of a sweep: each alone, all that go together, and the budget."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING

from rlc.check.analyse import Analysis
from rlc.check.stages import CheckedStage
from rlc.check.sweeps import Axis, CheckedSweep
from rlc.compile.sweeps import MOST_LISTED, Sweep, expression, needed, record_of, texts_of
from rlc.compile.trials import TrialCompiler, TriedRecipe
from rlc.lang.ast import Recipe
from rlc.lang.diagnostics import Diagnostics, Label, Severity
from rlc.lang.source import Span
from rlc.plan.records import Plan
from rlc.plan.stages import is_training
from rlc.plan.sweeps import AxisPlan, Configuration, metric_label
from rlc.records import evolve, frozen

if TYPE_CHECKING:
    from rlc.check.expectations import CheckedExpectation
    from rlc.data.reading import Reader


def checked_sweeps(
    recipe: Recipe,
    own: Analysis,
    seed: int,
    assemble: Callable[..., Plan],
    reader: Reader | None,
    found: Diagnostics,
) -> tuple[Sweep, ...]:
    """Return the sweeps of a recipe, after a report of what is wrong with their values. ``found``
    is what is known of the recipe without them; ``seed`` is the first one of each sweep."""
    compiler = TrialCompiler(recipe, own, reader, found)
    name = recipe.span.source.name

    def plan(
        stages: Sequence[CheckedStage], expectations: Sequence[CheckedExpectation], seed: int
    ) -> Plan:
        return assemble(name, stages, expectations, seed, "seeds of the sweep", reader)

    made = []
    for checked in own.sweeps:
        sweep = Sweep(record_of(checked), name, seed, checked.axes, compiler, plan)
        checker = _Checker(sweep, checked, found)
        fits = checker.sizes_fit() and checker.values_fit() and checker.combinations_fit()
        if fits and checker.axes_differ() and checker.halves():
            checker.check_budget()
        made.append(sweep)
    return tuple(made)


@frozen(eq=False)
class _Checker:
    sweep: Sweep
    checked: CheckedSweep
    found: Diagnostics

    def sizes_fit(self) -> bool:
        """Whether there are few enough configurations to list, and enough to draw from."""
        drawn = self.checked.search.n
        size = prod(axis.size for axis in self.checked.axes)
        if drawn is None and size > MOST_LISTED:
            message = f"this sweep has {size:,} configurations, more than {MOST_LISTED:,}"
            advice = "give fewer values, or draw some: `search = random(100)`"
            self.found.error("RL0610", self.checked.at("over"), message, advice)
            return False
        if drawn is not None and drawn > size:
            message = f"{drawn:,} configurations are to be drawn, none twice, of {size:,}"
            advice = (
                "`grid()` runs each of them; a range has more values than a list"
                if all(axis.values for axis in self.checked.axes)
                else "draw fewer, or give a range more values"
            )
            self.found.error("RL0611", self.checked.at("search.n"), message, advice)
            return False
        return True

    def values_fit(self) -> bool:
        """Whether each value of each axis makes a recipe of its own."""
        fit = [self._values_of(axis) for axis in self.checked.axes]
        return all(fit)

    def _values_of(self, axis: Axis) -> bool:
        (plan,) = (plan for plan in self.sweep.plan.axes if plan.path == axis.name)
        made: dict[str, Span] = {}  # the first value of each trial
        trained, again, warned = set[str](), None, dict[str, int]()
        for text in texts_of(plan):
            value = expression(axis, text)
            tried = self.sweep.with_values({axis.name: text})
            if not self._is_right(tried, value.span, warned) or self._lacks_metric(
                tried, value.span
            ):
                return False
            stages = [stage.plan() for stage in needed(tried.analysis.stages, self.checked.of)]
            trained.add(repr([stage for stage in stages if stage.trains]))
            first = made.setdefault(repr(stages), value.span)
            again = again if first is value.span else (first, value.span)
        if len(made) > 1 and again is None:
            if len(trained) == 1:
                message = f"`{axis.name}` changes how `{self.checked.of}` is evaluated, and not it"
                advice = "the runs are trained alike, and measured in different ways"
                self.found.warning("RL0612", axis.span, message, advice)
            return True
        if again is None:
            return True  # a single value
        written_once = all(value not in axis.values[:i] for i, value in enumerate(axis.values))
        if len(made) == 1 and written_once:
            message = f"`{axis.name}` changes nothing about `{self.checked.of}`"
            advice = "each of its values would be the same run: take it out"
            self.found.error("RL0600", axis.span, message, advice)
        else:
            label = Label(again[0], "the first time")
            message = f"`{axis.name}` is tried twice with one value"
            self.found.error("RL0603", again[1], message, "keep one of them", label)
        return False

    def _is_right(self, tried: TriedRecipe, place: Span, warned: dict[str, int]) -> bool:
        """Report what is wrong with a value: errors wherever they are, warnings of the value
        alone; what a trial says of other places need not matter to who compares it. What an
        earlier value is ``warned`` of, code -> finding, is said of both at once."""
        for item in tried.found:
            matters = item.severity is Severity.ERROR or item.span == place
            if item.severity is Severity.WARNING and item.span == place:
                first = warned.setdefault(item.code, len(self.found))
                if first < len(self.found):
                    labels = (*self.found[first].labels, Label(place, "this value too"))
                    self.found[first] = evolve(self.found[first], labels=labels)
                    continue
            shown = [item.span, *(label.span for label in item.labels)]
            if not any(self._is_inside(span) for span in shown if span is not None):
                item = evolve(item, labels=(*item.labels, Label(place, "with this value")))
            if matters and item not in self.found:
                self.found.append(item)
        return not any(item.severity is Severity.ERROR for item in tried.found)

    def _is_inside(self, span: Span) -> bool:
        """Whether a place is in the sweep's own text."""
        own = self.checked.decl.span
        return span.source is own.source and own.start <= span.start < own.end

    def _lacks_metric(self, tried: TriedRecipe, place: Span) -> bool:
        """Report a value with which the stage is no longer measured by the sweep's metric."""
        metric = self.checked.metric
        measured = next(stage for stage in tried.analysis.stages if stage.name == metric.stage)
        labels = [metric_label(each) for each in measured.parts.get("metrics", ())]
        if metric.stage == self.checked.of or metric.key.rpartition("/")[2] in labels:
            return False
        message = f"with this value `{metric.stage}` does not measure `{metric.name}`"
        advice = "all runs are compared by the same metric"
        self.found.error("RL0602", place, message, advice)
        return True

    def combinations_fit(self) -> bool:
        """Whether every configuration makes a recipe, also of those that a search may draw."""
        for configuration in self.sweep.configurations():
            tried = self.sweep.with_values(configuration)
            wrong = next((i for i in tried.found if i.severity is Severity.ERROR), None)
            if wrong is not None:
                values = ", ".join(f"{path} = {text}" for path, text in configuration.items())
                message = f"not all values go together: {wrong.message}, with {values}"
                labels = [] if wrong.span is None else [Label(wrong.span, "then wrong")]
                self.found.error("RL0605", self.checked.at("over"), message, wrong.help, *labels)
                return False
        return True

    def axes_differ(self) -> bool:
        """Whether the values of each axis still make runs of their own where the others are put in
        too: one of two axes may write over what the other has put in."""
        plans = self.sweep.plan.axes
        ends = [{plan.path: texts_of(plan)[end] for plan in plans} for end in (0, -1)]
        for axis, plan in zip(self.checked.axes, plans, strict=True):
            if not self._runs_again(plan, ends):
                continue
            other = next(
                other
                for other in self.checked.axes
                if other is self.checked.axes[-1]
                or (
                    other is not axis
                    and self._runs_again(plan, [{other.name: end[other.name]} for end in ends])
                )
            )
            message = f"`{axis.name}` makes the same runs again where `{other.name}` is put in"
            advice = "take one of the two out"
            if axis.name.startswith(f"{other.name}."):
                advice += f", or give `{other.name}` first and then its part"
            label = Label(other.span, "writes over it")
            self.found.error("RL0600", axis.span, message, advice, label)
            return False
        return True

    def _runs_again(self, plan: AxisPlan, others: Sequence[Configuration]) -> bool:
        """Whether values of an axis make the same trial, with any of some values of others."""
        for configuration in others:
            made = list[str]()
            for text in texts_of(plan):
                tried = self.sweep.with_values({**configuration, plan.path: text})
                if not any(item.severity is Severity.ERROR for item in tried.found):
                    stages = needed(tried.analysis.stages, self.checked.of)
                    made.append(repr([stage.plan() for stage in stages]))
            if len(set(made)) == len(made):
                return False
        return True

    def halves(self) -> bool:
        """Whether a halving compares runs before their last step."""
        search, of = self.checked.search, self.checked.of
        if search.eta is None or search.first is None:
            return True
        trials = ({axis.path: text} for axis in self.sweep.plan.axes for text in texts_of(axis))
        plans = (stage.plan() for trial in trials for stage in self.sweep.stages(trial))
        steps = max(p.steps for p in plans if p.name == of and is_training(p))
        if search.first < steps:
            return True
        message = f"runs are first compared after {search.first:,} steps, and `{of}` has {steps:,}"
        advice = f"`first` is at most {steps - 1:,}, and the evaluation's `every` as well"
        self.found.error("RL0607", self.checked.at("search"), message, advice)
        return False

    def check_budget(self) -> None:
        """Refuse a budget that does for no trial; warn of one that does not for all of them."""
        budget = self.checked.budget
        if budget.usd is None and budget.tokens is None:
            return
        cost = self.sweep.cost
        if budget.tokens is not None and cost.least_tokens > budget.tokens:
            message = f"a budget of {budget.tokens:,} tokens is less than any trial takes"
            advice = f"the cheapest is expected to take {cost.least_tokens:,.0f}"
            self.found.error("RL0608", self.checked.at("budget.tokens"), message, advice)
        if (most := budget.usd) is None:
            return
        place, whole, least = self.checked.at("budget.usd"), cost.total["expected"].usd, cost.least
        if least.usd > most:
            message = f"a budget of ${most:,.2f} is less than any trial costs"
            advice = (
                f"the cheapest is expected to cost ${least.usd:,.2f}, all of them ${whole:,.2f}"
            )
            self.found.error("RL0608", place, message, advice)
        elif whole > most:
            count = int(cost.trials * most / whole)
            message = (
                f"a budget of ${most:,.2f} will do for about {count:,} of {cost.trials:,} trials"
            )
            advice = (
                f"all of them are expected to cost ${whole:,.2f}; the sweep stops at the budget"
            )
            self.found.warning("RL0609", place, message, advice)
