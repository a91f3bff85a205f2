"""Rules on a stage: what goes together, and what cannot train as written.

A rule sees plan records, so it is about what will happen, not about how it was written. It runs
as soon as the parts that it needs could be read, regardless of errors in the others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from rlc.check.rules import (
    environments,
    games,
    learning,
    models,
    preferences,
    providers,
    rewards,
    run,
    sampling,
    tasks,
)
from rlc.check.rules.view import Rule, StageView
from rlc.check.values import Origins
from rlc.lang import Diagnostics, Source, Span
from rlc.plan import Plan
from rlc.plan.leaves import children_of
from rlc.records import evolve

if TYPE_CHECKING:
    from rlc.data import Reader

# In this order: what an earlier rule says of a place, a later one need not.
_FAMILIES = (
    *(models, providers, environments, games, rewards),
    *(tasks, learning, preferences, sampling, run),
)
RULES = [rule for family in _FAMILIES for rule in vars(family).values() if isinstance(rule, Rule)]


def run_rules(
    stages: Mapping[str, tuple[Mapping[str, Any], Origins]],
    found: Diagnostics,
    reader: Reader | None = None,
    same: Container[str] = (),
) -> None:
    """Apply to each stage the rules whose parts it has. A stage comes after the one whose weights
    it continues. With a ``reader`` their files are read too. Stages in ``same`` were checked."""
    views: dict[str, StageView] = {}
    for name, (parts, origins) in stages.items():
        earlier = views.get(parts.get("after") or "")
        before = () if earlier is None else (earlier, *earlier.before)
        views[name] = view = _with_demonstrations(StageView(parts, origins, found, before, reader))
        if name in same:
            continue
        for rule in _rules_of(frozenset(view.parts)):
            rule.check(view)


@cache
def _rules_of(parts: frozenset[str]) -> tuple[Rule, ...]:
    return tuple(rule for rule in RULES if rule.needs <= parts)


def _with_demonstrations(view: StageView) -> StageView:
    shown, values = view.parts.get("data"), view.origins.values
    if shown is None or not shown.environments:
        return view
    if (value := values.get("data")) is not None:
        values = {**values, "envs": evolve(value, data=(value.data.env,))}
    origins = evolve(view.origins, values=values)
    return evolve(view, parts={**view.parts, "envs": shown.environments}, origins=origins)


def check_plan(plan: Plan) -> Diagnostics:
    """Return what the rules find in a plan, of each code the first finding; it has no places.
    Raise UnknownBuiltinError for a name that no builtin has."""
    found, nowhere = Diagnostics(), Span(Source(plan.recipe, ""), 0, 0)
    recorded = defaultdict[str, dict[str, str]](dict)  # the origins of each stage
    for path, origin in plan.provenance.items():
        name, _, inside = path.removeprefix("stages.").partition(".")
        recorded[name][inside] = origin
    stages = {
        one.name: (dict(children_of(one) or {}), Origins(nowhere, recorded=recorded[one.name]))
        for one in plan.stages
    }
    run_rules(stages, found)
    return Diagnostics(evolve(item, span=None, labels=(), file=plan.recipe) for item in found)
