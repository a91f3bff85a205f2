"""Sweeps: every value is put in and checked, and every trial has a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, count, islice, product
from math import prod
from random import Random
from typing import TYPE_CHECKING, Any

from rlc.catalog import CLAIM, DEFAULT_BUDGET, STAGES, SWEEP, TEST
from rlc.check import (
    TAKEN,
    Axis,
    CheckedStage,
    CheckedSweep,
    NamedDecl,
    known_values,
    needed,
    report_budgets,
)
from rlc.check.analyse import Analysis, analyse
from rlc.compile.overrides import put_in
from rlc.errors import Error
from rlc.lang import (
    BlockDecl,
    Diagnostics,
    Expr,
    Label,
    Name,
    Negative,
    Node,
    Number,
    Recipe,
    Severity,
    Span,
    ValueDecl,
    format_expression,
)
from rlc.lang.render import render_human
from rlc.plan import (
    AxisPlan,
    Configuration,
    Plan,
    StagePlan,
    SweepPlan,
    in_dollars,
    is_training,
    metric_label,
)
from rlc.pricing import SweepCost, sweep_cost
from rlc.records import define, evolve, field, fields, frozen, has

if TYPE_CHECKING:
    from rlc.check import CheckedExpectation
    from rlc.data import Reader


# A path, and the expression that is put there.
Change = tuple[Sequence[Name], Expr]

_AXIS = "{} = […]"  # the form of a change in messages


@frozen(eq=False)
class TriedRecipe:
    """A recipe with some values: its analysis, and the findings that it has not without them."""

    analysis: Analysis
    found: Diagnostics


class TrialCompiler:
    """Compiles a recipe with changed values. ``own``, ``known``: analysis and findings as is."""

    def __init__(
        self, recipe: Recipe, own: Analysis, reader: Reader | None, known: Diagnostics
    ) -> None:
        left_out = SWEEP, CLAIM, TEST
        decls = tuple(decl for decl in recipe.decls if decl.kind.id not in left_out)
        self._recipe, self._reader = evolve(recipe, decls=decls), reader
        self._known = {(item.code, item.span, item.message) for item in known}
        named = {decl.name.id: decl for decl in decls if isinstance(decl, BlockDecl | ValueDecl)}
        self._own, self._reached = own, {name: _reached(name, named) for name in named}

    def with_values(self, changes: Sequence[Change]) -> TriedRecipe:
        """Return the recipe with values put in, as it is checked."""
        found, recipe, analysis = Diagnostics(), self._recipe, Analysis(())
        for path, value in changes:
            recipe = put_in(recipe, path, value, found, _AXIS)
        if not found.has_errors:
            changed = {path[0].id for path, _ in changes}
            # The names of the declarations that depend on none of these.
            same = {name for name, reached in self._reached.items() if reached.isdisjoint(changed)}
            values = {name: value for name, value in self._own.values.items() if name in same}
            stages = tuple(stage for stage in self._own.stages if stage.name in same)
            analysis = analyse(recipe, found, self._reader, Analysis(stages, values=values))
            if not found.has_errors and analysis.complete:
                name = recipe.span.source.name
                report_budgets(analysis.stages, name, found)
                if analysis.expectations:
                    from rlc.check import report_expectations

                    report_expectations(analysis.expectations, analysis.stages, name, found)
        new = (i for i in found if (i.code, i.span, i.message) not in self._known)
        return TriedRecipe(analysis, Diagnostics(new))


def _reached(name: str, decls: Mapping[str, NamedDecl]) -> set[str]:
    reached, waiting = set[tuple[str, bool]](), [(name, True)]
    while waiting:
        one = name, whole = waiting.pop()
        if one in reached or name not in decls:
            continue
        reached.add(one)
        decl = decls[name]
        parts: tuple[Node, ...] = (decl,)
        if isinstance(decl, BlockDecl) and decl.kind.id in STAGES and not whole:
            parts = tuple(field for field in decl.fields if field.name.id in TAKEN)
        is_made = isinstance(decl, ValueDecl)  # an amendment, or a use: of all of what it names
        waiting += [(name, is_made) for name in _names(parts)]
    return {name for name, _ in reached}


def _names(node: Any) -> Iterator[str]:
    if isinstance(node, Name):
        yield node.id.partition(".")[0]
    elif isinstance(node, tuple):
        for item in node:
            yield from _names(item)
    elif isinstance(node, Node) and has(type(node)):
        for part in fields(type(node)):
            yield from _names(getattr(node, part.name))


REHEARSED = 4  # configurations of a rehearsal
# All configurations up to a number are checked together; of more, a sample.
MOST_LISTED, SAMPLED = 2_000, 500


class TrialError(Error):
    """Values of a sweep that make no recipe; the message has the findings."""


class NoSweepError(Error):
    """A recipe does not declare the sweep that was asked for."""

    exit_status = 2


@define(eq=False)
class Sweep:
    """A sweep of a recipe; ``seed`` is the first of its seeds.

    ``assemble`` makes a plan of checked stages and expectations, with a seed; ``finish`` applies
    the options of a command: a rehearsal, another service.
    """

    plan: SweepPlan
    recipe: str
    seed: int
    _axes: tuple[Axis, ...]
    _compiler: TrialCompiler
    _assemble: Callable[[Sequence[CheckedStage], Sequence[CheckedExpectation], int], Plan]
    _finish: Callable[[Plan], Plan] | None = None
    most: int | None = None  # configurations, of a rehearsal
    _known: dict[tuple[tuple[str, str], ...], TriedRecipe] = field(factory=dict, init=False)

    @property
    def size(self) -> int:
        size = self.plan.search.n or prod(len(axis.values) for axis in self.plan.axes)
        return size if self.most is None else min(size, self.most)

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.plan.seeds)

    @property
    def combinations(self) -> int:
        """The number of configurations of the values of all axes; a range has its two ends."""
        return prod(len(texts_of(axis)) for axis in self.plan.axes)

    def configurations(self) -> Iterator[Configuration]:
        """Yield every configuration of the values of the axes; the last axis varies first, a range
        has its two ends. Of more than :data:`MOST_LISTED`, yield the ends of the axes, then others
        at random."""
        paths = [axis.path for axis in self.plan.axes]
        texts = [texts_of(axis) for axis in self.plan.axes]
        listed: Iterable[tuple[str, ...]] = product(*texts)
        if self.combinations > MOST_LISTED:
            ends = islice(product(*((text[0], text[-1]) for text in texts)), SAMPLED // 2)
            random = Random(self.plan.name)
            others = (tuple(random.choice(text) for text in texts) for _ in count())
            listed = islice(dict.fromkeys(chain(ends, islice(others, SAMPLED))), SAMPLED)
        for values in listed:
            yield dict(zip(paths, values, strict=True))

    def plan_of(self, configuration: Configuration, seed: int) -> Plan:
        """Return the plan of a trial. Raise TrialError if its values make no recipe."""
        stages = self.stages(configuration)
        expectations = self.with_values(configuration).analysis.expectations
        plan = self._assemble(stages, expectations, seed)
        return plan if self._finish is None else self._finish(plan)

    def finished(self, finish: Callable[[Plan], Plan], rehearse: bool) -> Sweep:
        """Return the sweep with all plans changed; of a rehearsal a few trials, and no budget."""
        changed = evolve(self, finish=finish)
        if not rehearse:
            return changed
        plan = evolve(self.plan, seeds=1, budget=DEFAULT_BUDGET, claims=())
        return evolve(changed, plan=plan, most=REHEARSED)

    def stages(self, configuration: Configuration) -> tuple[CheckedStage, ...]:
        """Return the stages that a trial needs. Raise TrialError if its values make no recipe."""
        tried = self.with_values(configuration)
        errors = [item for item in tried.found if item.severity is Severity.ERROR]
        if errors or not tried.analysis.complete:
            raise TrialError(render_human(Diagnostics(errors), color=False).rstrip())
        return needed(tried.analysis.stages, self.plan.of)

    def with_values(self, configuration: Configuration) -> TriedRecipe:
        """Return the recipe with the values of some axes put in, as it is checked."""
        key = tuple(configuration.items())
        if key not in self._known:
            axes = (axis for axis in self._axes if axis.name in configuration)
            changes = [(axis.path, expression(axis, configuration[axis.name])) for axis in axes]
            self._known[key] = self._compiler.with_values(changes)
        return self._known[key]

    @cached_property
    def cost(self) -> SweepCost:
        """The cost of all trials. Raise TrialError if values make no recipe."""

        def plans_of(configuration: Configuration) -> tuple[StagePlan, ...]:
            if self._finish is not None:
                return self.plan_of(configuration, self.seed).stages
            return tuple(stage.plan() for stage in self.stages(configuration))

        return sweep_cost(self.plan, map(plans_of, self.configurations()), self.recipe)


def find_sweep(sweeps: Sequence[Sweep], name: str | None, recipe: str) -> Sweep:
    """Return the sweep with a name, or the only one. Raise NoSweepError if there is none."""
    by_name = {sweep.plan.name: sweep for sweep in sweeps}
    if not by_name:
        advice = "for example `sweep rates { of = main  over = { learning_rate = [1e-5, 4e-5] } }`"
        raise NoSweepError(f"{recipe} declares no sweep", advice)
    if name is None and len(by_name) == 1:
        return sweeps[0]
    if name is None:
        raise NoSweepError(f"{recipe} has several sweeps", f"name one of {', '.join(by_name)}")
    if name not in by_name:
        raise NoSweepError(f"{recipe} has no sweep `{name}`", known_values([*by_name], name))
    return by_name[name]


def texts_of(axis: AxisPlan) -> tuple[str, ...]:
    """Return the values of an axis as they are written; of a range its two ends."""
    if axis.range is None:
        return axis.values
    return tuple(number_text(end, axis.range.whole) for end in (axis.range.low, axis.range.high))


def number_text(number: float, whole: bool) -> str:
    return str(int(number)) if whole else repr(float(number))


def expression(axis: Axis, text: str) -> Expr:
    """Return the expression of a value of an axis. Raise TrialError if it has no such value."""
    for expr in axis.values:
        if format_expression(expr) == text:
            return expr
    if axis.range is None:
        raise TrialError(f"`{axis.name}` is not tried with {text}")
    number = float(text) if not text.lstrip("-").isdecimal() else int(text)
    value = Number(axis.place, abs(number))
    return Negative(axis.place, value) if number < 0 else value


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
        axes = tuple(
            AxisPlan(axis.name, tuple(map(format_expression, axis.values)), axis.range)
            for axis in checked.axes
        )
        how = checked.seeds, checked.metric, checked.search, checked.budget
        claims = tuple(claim.plan for claim in own.claims if claim.of == checked.name)
        record = SweepPlan(checked.name, checked.of, axes, *how, claims)
        sweep = Sweep(record, name, seed, checked.axes, compiler, plan)
        checker = _Checker(sweep, checked, found)
        # All axes report, also after one that does not fit.
        fits = checker.sizes_fit() and False not in [*map(checker.values_fit, checked.axes)]
        if fits and checker.combinations_fit() and checker.axes_differ() and checker.halves():
            checker.check_budget()
        made.append(sweep)
    return tuple(made)


@frozen(eq=False)
class _Checker:
    sweep: Sweep
    checked: CheckedSweep
    found: Diagnostics

    def sizes_fit(self) -> bool:
        """Return whether there are few enough configurations to list, or enough to sample."""
        samples = self.checked.search.n
        size = prod(axis.size for axis in self.checked.axes)
        if samples is None and size > MOST_LISTED:
            message = f"this sweep has {size:,} configurations, more than {MOST_LISTED:,}"
            advice = "give fewer values, or draw some: `search = random(100)`"
            self.found.error("RL0610", self.checked.origins.at("over"), message, advice)
            return False
        if samples is not None and samples > size:
            message = f"{samples:,} configurations are to be sampled, none twice, of {size:,}"
            advice = "draw fewer, or give a range more values"
            if all(axis.values for axis in self.checked.axes):
                advice = "`grid()` runs each of them; a range has more values than a list"
            self.found.error("RL0611", self.checked.origins.at("search.n"), message, advice)
            return False
        return True

    def values_fit(self, axis: Axis) -> bool:
        """Return whether each value of an axis makes a recipe of its own."""
        (plan,) = (plan for plan in self.sweep.plan.axes if plan.path == axis.name)
        made: dict[str, Span] = {}  # the first value of each trial
        trained, again, warned = set[str](), None, dict[str, int]()
        for text in texts_of(plan):
            place = expression(axis, text).span
            tried = self.sweep.with_values({axis.name: text})
            if not self._is_right(tried, place, warned) or self._lacks_metric(tried, place):
                return False
            stages = [stage.plan() for stage in needed(tried.analysis.stages, self.checked.of)]
            trained.add(repr([stage for stage in stages if stage.trains]))
            first = made.setdefault(repr(stages), place)
            again = again if first is place else (first, place)
        if again is None:
            if len(trained) == 1 < len(made):
                message = f"`{axis.name}` changes how `{self.checked.of}` is evaluated, and not it"
                advice = "the runs are trained alike, and measured in different ways"
                self.found.warning("RL0612", axis.span, message, advice)
            return True
        written_once = all(value not in axis.values[:i] for i, value in enumerate(axis.values))
        if len(made) == 1 and written_once:
            message = f"`{axis.name}` changes nothing about `{self.checked.of}`"
            advice = "each of its values would be the same run: remove it"
            self.found.error("RL0600", axis.span, message, advice)
        else:
            label = Label(again[0], "the first time")
            message = f"`{axis.name}` is tried twice with one value"
            self.found.error("RL0603", again[1], message, "keep one of them", label)
        return False

    def _is_right(self, tried: TriedRecipe, place: Span, warned: dict[str, int]) -> bool:
        """Return whether a value makes a recipe. Report errors, and warnings at the value itself,
        once for all values of an axis: ``warned`` has the index of the finding of each code."""
        own = self.checked.decl.span
        for item in tried.found:
            matters = item.severity is Severity.ERROR or item.span == place
            if item.severity is Severity.WARNING and item.span == place:
                first = warned.setdefault(item.code, len(self.found))
                if first < len(self.found):
                    labels = (*self.found[first].labels, Label(place, "this value too"))
                    self.found[first] = evolve(self.found[first], labels=labels)
                    continue
            shown = (item.span, *(label.span for label in item.labels))
            here = (span for span in shown if span is not None and span.source is own.source)
            if not any(own.start <= span.start < own.end for span in here):
                item = evolve(item, labels=(*item.labels, Label(place, "with this value")))
            if matters and item not in self.found:
                self.found.append(item)
        return not tried.found.has_errors

    def _lacks_metric(self, tried: TriedRecipe, place: Span) -> bool:
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
        """Return whether every configuration makes a recipe, even if a search only samples them."""
        for configuration in self.sweep.configurations():
            tried = self.sweep.with_values(configuration)
            wrong = next((i for i in tried.found if i.severity is Severity.ERROR), None)
            if wrong is not None:
                values = ", ".join(f"{path} = {text}" for path, text in configuration.items())
                message = f"not all values go together: {wrong.message}, with {values}"
                labels = [] if wrong.span is None else [Label(wrong.span, "then wrong")]
                self.found.error(
                    "RL0605", self.checked.origins.at("over"), message, wrong.help, *labels
                )
                return False
        return True

    def axes_differ(self) -> bool:
        """Return whether no axis overwrites another: its values make runs of their own."""
        plans = self.sweep.plan.axes
        ends = [{plan.path: texts_of(plan)[end] for plan in plans} for end in (0, -1)]
        for axis, plan in zip(self.checked.axes, plans, strict=True):
            if not self._runs_again(plan, ends):
                continue
            for other in self.checked.axes:
                alone = [{other.name: end[other.name]} for end in ends]
                if other is not axis and self._runs_again(plan, alone):
                    break
            message = f"`{axis.name}` makes the same runs again where `{other.name}` is put in"
            advice = "remove one of the two"
            if axis.name.startswith(f"{other.name}."):
                advice += f", or give `{other.name}` first and then its part"
            label = Label(other.span, "writes over it")
            self.found.error("RL0600", axis.span, message, advice, label)
            return False
        return True

    def _runs_again(self, plan: AxisPlan, others: Sequence[Configuration]) -> bool:
        """Return whether values of an axis make the same trial, with any of the other values."""
        for configuration in others:
            made = list[str]()
            for text in texts_of(plan):
                tried = self.sweep.with_values({**configuration, plan.path: text})
                if not tried.found.has_errors:
                    stages = needed(tried.analysis.stages, self.checked.of)
                    made.append(repr([stage.plan() for stage in stages]))
            if len(set(made)) == len(made):
                return False
        return True

    def halves(self) -> bool:
        """Return whether a halving compares runs before their last step."""
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
        self.found.error("RL0607", self.checked.origins.at("search"), message, advice)
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
            self.found.error("RL0608", self.checked.origins.at("budget.tokens"), message, advice)
        if (most := budget.usd) is None:
            return
        place, whole = self.checked.origins.at("budget.usd"), cost.total["expected"].usd
        least, own = cost.least.usd, f"a budget of {in_dollars(most)}"
        if least > most:
            advice = f"the cheapest is expected to cost {in_dollars(least)}, all of them "
            advice += in_dollars(whole)
            self.found.error("RL0608", place, f"{own} is less than any trial costs", advice)
        elif whole > most:
            message = f"{own} covers about {int(cost.trials * most / whole):,} of "
            advice = f"all of them are expected to cost {in_dollars(whole)}; "
            advice += "the sweep stops at the budget"
            self.found.warning("RL0609", place, f"{message}{cost.trials:,} trials", advice)
