"""Sweeps: every value is put in and checked, and every trial has a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, count, islice, product
from math import prod
from random import Random
from typing import TYPE_CHECKING

from rlc.catalog.builtins.training import DEFAULT_BUDGET
from rlc.catalog.declarations import EVAL
from rlc.check.scope import known_values
from rlc.check.stages import CheckedStage
from rlc.check.sweeps import Axis, CheckedSweep
from rlc.compile.trials import TrialCompiler, TriedRecipe
from rlc.errors import Error
from rlc.lang.ast import Expr, Negative, Number
from rlc.lang.diagnostics import Diagnostics, Severity
from rlc.lang.formatter import format_expression
from rlc.lang.render import render_human
from rlc.plan.records import Plan
from rlc.plan.stages import StagePlan
from rlc.plan.sweeps import AxisPlan, Configuration, SweepPlan
from rlc.pricing.sweeps import SweepCost, sweep_cost
from rlc.records import define, evolve, field

if TYPE_CHECKING:
    from rlc.check.expectations import CheckedExpectation

REHEARSED = 4  # configurations of a rehearsal
# Configurations that are checked together, each of them; of those that are more, so many.
MOST_LISTED, SAMPLED = 2_000, 500


class TrialError(Error):
    """Values of a sweep that make no recipe; the message has the findings."""


class NoSweepError(Error):
    """A recipe does not declare the sweep that was asked for."""

    exit_status = 2


@define(eq=False)
class Sweep:
    """A sweep of a recipe; ``seed`` is the first of its seeds.

    ``assemble`` makes a plan of checked stages and expectations, with a seed; ``finish`` makes of
    it what the options of a command do: a rehearsal, a plan on another service.
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
        """How many configurations are tried."""
        size = self.plan.search.n or prod(len(axis.values) for axis in self.plan.axes)
        return size if self.most is None else min(size, self.most)

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.plan.seeds)

    @property
    def combinations(self) -> int:
        """How many configurations the axes' values have together; a range counts with its ends."""
        return prod(len(texts_of(axis)) for axis in self.plan.axes)

    def configurations(self) -> Iterator[Configuration]:
        """Every configuration of the axes' values; the last axis varies first. A range stands
        there with its two ends. Of more than :data:`MOST_LISTED`, from which a search only draws,
        it is a sample: the ends of the axes, then others at random."""
        paths = [axis.path for axis in self.plan.axes]
        texts = [texts_of(axis) for axis in self.plan.axes]
        listed: Iterable[tuple[str, ...]] = product(*texts)
        if self.combinations > MOST_LISTED:
            ends = islice(product(*((text[0], text[-1]) for text in texts)), SAMPLED // 2)
            drawn = Random(self.plan.name)
            others = (tuple(drawn.choice(text) for text in texts) for _ in count())
            listed = islice(dict.fromkeys(chain(ends, islice(others, SAMPLED))), SAMPLED)
        for values in listed:
            yield dict(zip(paths, values, strict=True))

    def plan_of(self, configuration: Configuration, seed: int) -> Plan:
        """The plan of a trial. Raise TrialError if its values make no recipe."""
        stages = self.stages(configuration)
        expectations = self.with_values(configuration).analysis.expectations
        plan = self._assemble(stages, expectations, seed)
        return plan if self._finish is None else self._finish(plan)

    def finished(self, finish: Callable[[Plan], Plan], rehearse: bool) -> Sweep:
        """The same sweep with all plans changed; of a rehearsal a few trials, and no budget."""
        changed = evolve(self, finish=finish)
        if not rehearse:
            return changed
        plan = evolve(self.plan, seeds=1, budget=DEFAULT_BUDGET)
        return evolve(changed, plan=plan, most=REHEARSED)

    def stages(self, configuration: Configuration) -> tuple[CheckedStage, ...]:
        """The stages of a trial: the one that is tried, with those that it continues and its
        evaluations. Raise TrialError if the values make no recipe."""
        tried = self.with_values(configuration)
        errors = [item for item in tried.found if item.severity is Severity.ERROR]
        if errors or not tried.analysis.complete:
            raise TrialError(render_human(Diagnostics(errors), color=False).rstrip())
        return needed(tried.analysis.stages, self.plan.of)

    def with_values(self, configuration: Configuration) -> TriedRecipe:
        """The recipe with the values of some axes put in, as it is checked."""
        key = tuple(configuration.items())
        if key not in self._known:
            axes = (axis for axis in self._axes if axis.name in configuration)
            changes = [(axis.path, expression(axis, configuration[axis.name])) for axis in axes]
            self._known[key] = self._compiler.with_values(changes)
        return self._known[key]

    @cached_property
    def cost(self) -> SweepCost:
        """What all trials cost together. Raise TrialError if values make no recipe."""
        stages = map(self._stage_plans, self.configurations())
        return sweep_cost(self.plan, stages, self.recipe)

    def _stage_plans(self, configuration: Configuration) -> tuple[StagePlan, ...]:
        if self._finish is not None:
            return self.plan_of(configuration, self.seed).stages
        return tuple(stage.plan() for stage in self.stages(configuration))


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
    """The values of an axis as they are written; of a range its two ends."""
    if axis.range is None:
        return axis.values
    return tuple(number_text(end, axis.range.whole) for end in (axis.range.low, axis.range.high))


def number_text(number: float, whole: bool) -> str:
    """A number as a recipe writes it."""
    return str(int(number)) if whole else repr(float(number))


def expression(axis: Axis, text: str) -> Expr:
    """The expression of a value of an axis. Raise TrialError if it has no such value."""
    for expr in axis.values:
        if format_expression(expr) == text:
            return expr
    if axis.range is None:
        raise TrialError(f"`{axis.name}` is not tried with {text}")
    number = float(text) if not text.lstrip("-").isdecimal() else int(text)
    value = Number(axis.place, abs(number))
    return Negative(axis.place, value) if number < 0 else value


def needed(stages: Sequence[CheckedStage], of: str) -> tuple[CheckedStage, ...]:
    """A stage with its evaluations, and all stages whose weights these need."""
    by_name = {stage.name: stage for stage in stages}
    evaluations = [s.name for s in stages if s.decl.kind.id == EVAL and s.parts["after"] == of]
    names, waiting = set[str](), [of, *evaluations]
    while waiting:
        names.add(name := waiting.pop())
        waiting += [earlier for earlier in by_name[name].needs if earlier not in names]
    return tuple(stage for stage in stages if stage.name in names)


def record_of(checked: CheckedSweep) -> SweepPlan:
    """The record of a sweep."""
    axes = (
        AxisPlan(axis.name, tuple(map(format_expression, axis.values)), axis.range)
        for axis in checked.axes
    )
    return SweepPlan(
        checked.name,
        checked.of,
        tuple(axes),
        checked.seeds,
        checked.metric,
        checked.search,
        checked.budget,
    )
