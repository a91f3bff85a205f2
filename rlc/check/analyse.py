"""The whole check: from a syntax tree to stages whose every value is decided."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rlc.catalog import CLAIM, STAGES, SWEEP, TEST
from rlc.check.evaluate import Evaluator
from rlc.check.rules import run_rules
from rlc.check.scope import NamedDecl, Scope, collect, is_made
from rlc.check.stages import CheckedStage, check_stage
from rlc.check.values import Value
from rlc.lang import BlockDecl, Diagnostics, Label, Recipe, Span
from rlc.records import field, frozen

if TYPE_CHECKING:
    from rlc.check.expectations import CheckedExpectation
    from rlc.check.rules.recipe_tests import CheckedTest
    from rlc.check.trials.claims import CheckedClaim
    from rlc.check.trials.sweeps import CheckedSweep
    from rlc.data import Reader


@frozen(eq=False)
class Analysis:
    """The stages of a recipe, each after those whose weights it needs, its sweeps, claims,
    expectations and tests, as far as they can be read, and the values of its declarations."""

    stages: tuple[CheckedStage, ...]
    sweeps: tuple[CheckedSweep, ...] = ()
    claims: tuple[CheckedClaim, ...] = ()
    expectations: tuple[CheckedExpectation, ...] = ()
    tests: tuple[CheckedTest, ...] = ()
    values: Mapping[str, Value | None] = field(factory=dict)

    @property
    def complete(self) -> bool:
        return all(stage.complete for stage in self.stages)


def analyse(
    recipe: Recipe, found: Diagnostics, reader: Reader | None = None, same: Analysis | None = None
) -> Analysis:
    """Check a recipe and report all that is wrong with it, each mistake once. For trials of sweeps,
    ``same`` has what their values do not change; that is not checked again."""
    scope = collect(recipe, found)
    templates = {} if same is not None else scope.templates
    if templates:
        # Most recipes have none.
        from rlc.check.uses import check_templates, report_unused_parameters

        check_templates(scope, found)
    same = same or Analysis(())
    known = {stage.name: stage for stage in same.stages}
    evaluator = Evaluator(scope, recipe.span.source.name, found, same.values)
    for decl in templates.values():
        if decl.kind.id not in STAGES:
            _alone(decl, evaluator)
    for decl in scope.in_order:
        if is_made(decl, scope.templates):
            evaluator.block(decl, decl.name)
    stages: dict[str, CheckedStage] = {}
    # Evaluations come last: they take what they do not say from the stages that they evaluate. What
    # learns from preferences comes first: others may be rewarded by it.
    turns = {"preference": -1, "eval": 1}
    for decl in sorted(scope.in_order, key=lambda decl: turns.get(decl.kind.id, 0)):
        if isinstance(decl, BlockDecl) and decl.kind.id in STAGES:
            stages[decl.name.id] = known.get(decl.name.id) or check_stage(
                decl, evaluator, stages, found, reader
            )
        elif decl.kind.id not in (SWEEP, CLAIM, TEST):
            evaluator.declared(decl)
    for decl in templates.values():
        if decl.kind.id in STAGES and (whole := _alone(decl, evaluator)) is not None:
            used = set(scope.used)
            check_stage(whole, evaluator, stages, found, reader)
            scope.used -= {decl.name.id} - used  # its own check does not use it
    sweeps: list[CheckedSweep] = []
    for decl in scope.in_order:
        if isinstance(decl, BlockDecl) and decl.kind.id == SWEEP:
            from rlc.check.trials.sweeps import SweepChecker  # most recipes have none

            scope.used.add(decl.name.id)
            if (sweep := SweepChecker(decl, evaluator, stages, found).checked()) is not None:
                sweeps.append(sweep)
    claims: tuple[CheckedClaim, ...] = ()
    claimed = [d for d in scope.in_order if isinstance(d, BlockDecl) and d.kind.id == CLAIM]
    if claimed:
        from rlc.check.trials.claims import check_claims  # most recipes have none

        scope.used.update(decl.name.id for decl in claimed)
        claims = check_claims(claimed, evaluator, sweeps, stages, found)
    expectations: tuple[CheckedExpectation, ...] = ()
    if scope.expectations:
        from rlc.check.expectations import check_expectations  # most recipes have none

        expectations = check_expectations(scope.expectations, evaluator, stages, found)
    tests: tuple[CheckedTest, ...] = ()
    own = [decl for decl in scope.in_order if decl.span.source is recipe.span.source]
    if tested := [decl for decl in own if isinstance(decl, BlockDecl) and decl.kind.id == TEST]:
        from rlc.check.rules.recipe_tests import check_tests  # most recipes have none

        tests = check_tests(tested, evaluator, stages, found, reader)
    written = [stages[decl.name.id] for decl in scope.in_order if decl.name.id in stages]
    ordered = _in_order(written, stages, found)
    parts = {stage.name: (stage.parts, stage.origins) for stage in ordered}
    run_rules(parts, found, reader, known)
    if len(ordered) > 1 or scope.templates:
        found.drop_repeated()  # what several copies of one text have in common
    if not (scope.templates or ordered or found.has_errors):  # those with templates are imported
        report_no_stage(recipe.decls[-1].span if recipe.decls else recipe.span, found)
    if not found.has_errors:
        _report_unused(scope, recipe, found)
        if templates:
            report_unused_parameters(scope, found)
        _report_trained_twice(ordered, found)
    return Analysis(tuple(ordered), tuple(sweeps), claims, expectations, tests, evaluator.values)


def report_no_stage(span: Span, found: Diagnostics) -> None:
    """Report that there is nothing to run."""
    message = "this recipe has no stage, so there is nothing to run"
    advice = "add `train main { model = …  env = … }`, or import it from one that has"
    found.warning("RL0301", span, message, advice)


def _alone(decl: NamedDecl, evaluator: Evaluator) -> BlockDecl | None:
    """Check a declaration with parameters by its defaults; return the block that it then is."""
    with evaluator.inside(decl.name.id):
        whole = evaluator.uses.alone(decl)
        made = evaluator.uses.block(whole) if is_made(whole, evaluator.scope.templates) else whole
        if made is not None and decl.kind.id not in STAGES:
            evaluator.made(made)
    return made if isinstance(made, BlockDecl) else None


def _in_order(
    written: Iterable[CheckedStage], stages: Mapping[str, CheckedStage], found: Diagnostics
) -> list[CheckedStage]:
    """Return stages as they are written, but each after those that it needs. Report circles."""
    ordered: dict[str, CheckedStage] = {}

    def add(stage: CheckedStage, waiting: tuple[str, ...]) -> None:
        if stage.name in waiting:
            circle = [*waiting[waiting.index(stage.name) :], stage.name]
            message = f"`{stage.name}` needs the weights that it leaves itself"
            advice = f"remove the cycle: {' → '.join(circle)}"
            found.error("RL0112", stage.decl.name.span, message, advice)
        elif stage.name not in ordered:
            for name in stage.needs:
                if name in stages:
                    add(stages[name], (*waiting, stage.name))
            ordered.setdefault(stage.name, stage)

    for stage in written:
        add(stage, ())
    return list(ordered.values())


def _report_unused(scope: Scope, recipe: Recipe, found: Diagnostics) -> None:
    """Warn of names that are not used, except in imported files and files without stages."""
    if not scope.of_kind(*STAGES):
        return
    for decl in [*scope.in_order, *scope.templates.values()]:
        own = decl.span.source is recipe.span.source
        runs = (decl.kind.id in STAGES and decl.parameters is None) or decl.kind.id == TEST
        if own and decl.name.id not in scope.used and not runs:
            message = f"`{decl.name.id}` is declared but never used"
            found.warning("RL0114", decl.name.span, message, "use it, or remove it")


def _report_trained_twice(stages: Iterable[CheckedStage], found: Diagnostics) -> None:
    """Warn of two stages on one model: they train two adapters, one does not continue the other."""
    first: dict[str, CheckedStage] = {}
    for stage in stages:
        if stage.decl.kind.id == "eval" or stage.parts["after"] is not None:
            continue
        name = stage.parts["model"].name
        earlier = first.setdefault(name, stage)
        if earlier.name in stage.needs:  # its teacher, say, and the one that it teaches
            continue
        fields = [f for s in (stage, earlier) for f in s.decl.fields if f.name.id == "model"]
        is_shared = len(fields) == 2 and fields[0] is fields[1]  # one amends the other, or a third
        if earlier is not stage and not is_shared:
            label = Label(earlier.decl.name.span, "trains its own")
            message = (
                f"`{stage.name}` does not continue `{earlier.name}`: it starts from a new adapter"
            )
            advice = f"`model = {earlier.name}` goes on from it; declare a second model if not"
            found.warning("RL0412", stage.decl.name.span, message, advice, label)
