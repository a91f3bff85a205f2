"""The whole check: from a syntax tree to stages whose every value is decided."""

from __future__ import annotations

from typing import Any

from attrs import evolve, frozen

from rlc.catalog.declarations import TRAIN_FIELDS
from rlc.check.bind import Owner, bind
from rlc.check.evaluate import Evaluator
from rlc.check.mixtures import merged
from rlc.check.rules import run_rules
from rlc.check.scope import Scope, collect
from rlc.check.settle import Origins, settle
from rlc.check.values import Value
from rlc.lang.ast import BlockDecl, Recipe
from rlc.lang.diagnostics import Diagnostics, Label
from rlc.plan.tree import TrainPlan


@frozen
class CheckedStage:
    """A ``train`` declaration: its settled parts by field, and where they came from.

    Parts that could not be read are missing; :attr:`complete` says whether any are.
    """

    decl: BlockDecl
    parts: dict[str, Any]
    origins: Origins
    complete: bool

    @property
    def name(self) -> str:
        return self.decl.name.id

    def plan(self) -> TrainPlan:
        """The stage's plan; only for a complete one."""
        return TrainPlan(name=self.name, **self.parts)


def analyse(recipe: Recipe, found: Diagnostics) -> tuple[CheckedStage, ...]:
    """Check everything and report all that is wrong, each mistake once."""
    scope = collect(recipe, found)
    evaluator = Evaluator(scope, found)
    stages = []
    for decl in scope.in_order:
        if isinstance(decl, BlockDecl) and decl.kind.id == "train":
            scope.used.add(decl.name.id)
            stages.append(_stage(decl, evaluator, found))
        else:
            evaluator.declared(decl)
    for stage in stages:
        run_rules(stage.parts, stage.origins, found)
    _report_no_stage(recipe, stages, found)
    if not found.has_errors:
        _report_unused(scope, found)
        _report_trained_twice(stages, found)
    return tuple(stages)


def _stage(decl: BlockDecl, evaluator: Evaluator, found: Diagnostics) -> CheckedStage:
    owner = Owner("train", "a `train` stage", "field", decl.name.span, unread=decl.unread)
    bound = bind(decl.fields, TRAIN_FIELDS, owner, evaluator.value, found)
    stage = CheckedStage(decl, {}, Origins(decl.name.span), bound.complete)
    stage.origins.provenance["name"] = decl.name.span.place()
    for param in TRAIN_FIELDS:
        value = bound.values.get(param.name)
        if value is not None:
            name = _PART_NAMES.get(param.name, param.name)
            stage.parts[name] = settle(_prepared(value), name, stage.origins)
    return stage


# A field's name in a recipe, and the attribute of the plan that it becomes.
_PART_NAMES = {"env": "envs", "budget": "budget_usd"}


def _prepared(value: Value) -> Value:
    return evolve(value, data=merged(value.data)) if value.type == "env" else value


def _report_no_stage(recipe: Recipe, stages: list[CheckedStage], found: Diagnostics) -> None:
    if not stages and not found.has_errors:
        message = "this recipe has no `train` stage, so there is nothing to run"
        last = recipe.decls[-1].span if recipe.decls else recipe.span
        found.error("RL0301", last, message, "add `train main { model = …  env = … }`")


def _report_unused(scope: Scope, found: Diagnostics) -> None:
    for decl in scope.in_order:
        if decl.name.id not in scope.used:
            message = f"`{decl.name.id}` is declared but never used"
            found.warning("RL0114", decl.name.span, message, "use it, or take it out")


def _report_trained_twice(stages: list[CheckedStage], found: Diagnostics) -> None:
    """Two stages on one model are two adapters, which is easily taken for a continuation."""
    first: dict[str, CheckedStage] = {}
    for stage in stages:
        name = stage.parts["model"].name
        earlier = first.setdefault(name, stage)
        if earlier is not stage:
            label = Label(earlier.decl.name.span, "trains its own")
            message = f"`{stage.name}` does not go on from `{earlier.name}`: its adapter is fresh"
            advice = f"declare a model for it, as a copy of `{name}`, if that is meant"
            found.warning("RL0412", stage.decl.name.span, message, advice, label)
