"""From recipe text to a plan: parse, override, check, put together."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rlc.catalog import TEST
from rlc.check import (
    CheckedStage,
    report_budgets,
    report_evaluations,
    report_services,
    report_states,
)
from rlc.check.analyse import Analysis, analyse, report_no_stage
from rlc.lang import Diagnostics, Read, Source, Span, read_source, resolve_imports
from rlc.lang.syntax import parse
from rlc.plan import Plan, build_graph
from rlc.records import evolve, frozen

if TYPE_CHECKING:
    from rlc.check import CheckedExpectation, CheckedTest
    from rlc.compile.sweeps import Sweep
    from rlc.data import Reader

DEFAULT_SEED = 1

# ``{"main.steps": "10"}`` or ``["main.steps=10"]``
Overrides = Mapping[str, str] | Collection[str]


@frozen(eq=False)
class CompileResult:
    """The result of a compilation. ``plan`` is None if there are errors or no stages; ``sweeps``
    and ``tests`` are those of the recipe, if there are no errors. ``unmet`` is what the plan would
    be if it did not fail an expectation, which is its only error: it can be explained, and is not
    run."""

    plan: Plan | None
    diagnostics: Diagnostics
    sweeps: tuple[Sweep, ...] = ()
    unmet: Plan | None = None
    tests: tuple[CheckedTest, ...] = ()


def load(
    path: str | os.PathLike[str],
    overrides: Overrides = (),
    seed: int | None = None,
    rehearse: bool = False,
    service: str | None = None,
    folder: str = "",
    reader: Reader | None = None,
) -> CompileResult:
    """Compile the recipe in a file (``-``: standard input). With a ``reader`` its data is read and
    checked too. Paths in ``overrides`` start at ``folder``, by default the working directory. With
    ``rehearse`` the plan is a rehearsal; with ``service`` it runs there. Raise
    :class:`rlc.compile.variants.ServiceMismatchError` if that does not have the model."""
    source, found = read_source(path)
    if source is None:
        return CompileResult(None, found)
    compiled = compile_source(source, overrides, seed, folder, reader, service=service)
    found = compiled.diagnostics
    if compiled.plan is None and not found.has_errors and all(d.code != "RL0301" for d in found):
        report_no_stage(Span(source, 0, 0), found)  # a check takes it for one that is imported
    plan = compiled.plan or compiled.unmet
    if plan is None or not (rehearse or service):
        return compiled

    from rlc.compile import variants

    def finish(plan: Plan) -> Plan:
        plan = variants.rehearse(plan) if rehearse else plan
        return variants.on_service(plan, service) if service is not None else plan

    sweeps = tuple(sweep.finished(finish, rehearse) for sweep in compiled.sweeps)
    return _result(finish(plan), found, sweeps, compiled.tests)


def check(
    path: str | os.PathLike[str], reader: Reader | None = None, overrides: Overrides = ()
) -> Diagnostics:
    """Return the findings in the recipe of a file (``-``: standard input), and in its data."""
    source, found = read_source(path)
    if source is not None:
        *_, found = _checked(source, overrides, reader=reader)
    return found


def compile_source(
    source: Source,
    overrides: Overrides = (),
    seed: int | None = None,
    folder: str = "",
    reader: Reader | None = None,
    read: Read = read_source,
    service: str | None = None,
) -> CompileResult:
    """Compile a recipe, with the values that ``overrides`` put into it; paths in these start at
    ``folder``. With a ``reader`` the data that it names is read and checked too. ``read`` reads the
    files that it imports. Budgets and expectations are judged as of ``service``, if it is given;
    :func:`load` says whether the plan can run there."""
    analysis, sweeps, found = _checked(source, overrides, folder, reader, seed, read, service)
    if analysis is None or not analysis.stages:
        return CompileResult(None, found, tests=() if analysis is None else analysis.tests)
    origin, first = "default" if seed is None else "--seed", DEFAULT_SEED if seed is None else seed
    given = analysis.stages, analysis.expectations
    return _result(_plan(source.name, *given, first, origin, reader), found, sweeps, analysis.tests)


def _on_service(stages: Sequence[CheckedStage], service: str, recipe: str) -> list[CheckedStage]:
    from rlc.compile.variants import stage_on_service

    moved = partial(stage_on_service, service=service, recipe=recipe)
    return [evolve(stage, moved=moved) for stage in stages]


def _result(
    plan: Plan,
    found: Diagnostics,
    sweeps: tuple[Sweep, ...],
    tests: tuple[CheckedTest, ...] = (),
) -> CompileResult:
    unmet = found.has_errors
    return CompileResult(None if unmet else plan, found, sweeps, plan if unmet else None, tests)


def _plan(
    recipe: str,
    stages: Sequence[CheckedStage],
    expectations: Sequence[CheckedExpectation],
    seed: int,
    origin: str,
    reader: Reader | None,
) -> Plan:
    plans = tuple(stage.plan() for stage in stages)
    provenance = {"seed": origin}
    for stage in stages:
        own = stage.provenance().items()
        provenance |= {f"stages.{stage.name}.{path}": source for path, source in own}
    expected = []
    for one in expectations:
        if one.stages <= {stage.name for stage in stages}:
            expected.append(one.plan)
            provenance[f"expect {one.plan.compared}"] = one.span.place()
    plan = Plan(recipe, seed, plans, build_graph(plans), provenance, expectations=tuple(expected))
    if reader is not None:
        from rlc.catalog import paths_in  # a check alone makes no plan, and hashes nothing

        if named := paths_in(plan):
            from rlc.data import data_files

            plan = evolve(plan, data=data_files(named, recipe))
    return plan


def _checked(
    source: Source,
    overrides: Overrides = (),
    folder: str = "",
    reader: Reader | None = None,
    seed: int | None = None,
    read: Read = read_source,
    service: str | None = None,
) -> tuple[Analysis | None, tuple[Sweep, ...], Diagnostics]:
    """Return analysis, sweeps and findings; None and no sweeps if there are errors but those of
    expectations."""
    recipe, found = parse(source)
    recipe = resolve_imports(recipe, found, read)
    for text in dict.fromkeys([source, *(decl.span.source for decl in recipe.decls)]):
        found.report_keys(text)
    if overrides:
        from rlc.compile.overrides import apply_overrides  # most checks have none

        recipe = apply_overrides(recipe, overrides, folder, found)
        # Tests are of the recipe as it is written: another value may be what they rule out.
        recipe = evolve(recipe, decls=tuple(d for d in recipe.decls if d.kind.id != TEST))
    analysis = analyse(recipe, found, reader)
    if found.has_errors or not analysis.complete:
        return None, (), found
    stages: Sequence[CheckedStage] = analysis.stages
    if service is None:
        report_services(stages, found)
    else:
        stages = _on_service(stages, service, source.name)
    report_states(stages, found)
    report_budgets(stages, source.name, found)
    report_evaluations(stages, source.name, found)
    if analysis.expectations:
        from rlc.check import report_expectations  # most recipes have none

        report_expectations(analysis.expectations, stages, source.name, found)
    sweeps: tuple[Sweep, ...] = ()
    if analysis.sweeps and not found.has_errors:
        from rlc.compile.sweeps import checked_sweeps  # most recipes have none

        first = DEFAULT_SEED if seed is None else seed
        sweeps = checked_sweeps(recipe, analysis, first, _plan, reader, found)
    errors = {finding.code for finding in found if finding.severity == "error"}
    return (analysis, sweeps, found) if errors <= {"RL0674"} else (None, (), found)
