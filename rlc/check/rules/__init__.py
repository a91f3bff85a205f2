"""Rules on a stage: what goes together, and what cannot train as written.

A rule sees plan records, so it is about what will happen, not about how it was written. It runs
as soon as the parts that it needs could be read, whatever is wrong with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, fields

from rlc.check.rules import (
    advantage,
    environments,
    evaluation,
    loss,
    model,
    overlap,
    run,
    sampling,
    tasks,
)
from rlc.check.rules.base import Rule, View
from rlc.check.settle import Origins
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Source, Span
from rlc.plan.records import Plan

# In this order: what an earlier rule says of a place, a later one need not.
FAMILIES = (model, environments, tasks, advantage, loss, overlap, sampling, evaluation, run)
RULES = [rule for family in FAMILIES for rule in vars(family).values() if isinstance(rule, Rule)]


def run_rules(parts: Mapping[str, Any], origins: Origins, found: Diagnostics) -> None:
    """Apply every rule whose parts of a stage are there."""
    data = parts.get("data")
    if data is not None and data.env is not None:  # what demonstrates is an environment too
        parts = {**parts, "envs": (data.env,)}
        if (value := origins.values.get("data")) is not None:
            played = evolve(value, data=(value.data.env,))
            origins = Origins(origins.span, {**origins.values, "envs": played})
    view = View(parts, origins, found)
    for rule in RULES:
        if rule.needs <= parts.keys():
            rule.check(view)


def check_plan(plan: Plan) -> Diagnostics:
    """What the rules find in a plan, such as one that was changed in Python; of each code the first
    finding. There are no places to point at. Raise UnknownBuiltinError for a name that no builtin
    has."""
    found = Diagnostics()
    nowhere = Origins(Span(Source(plan.recipe, ""), 0, 0))
    for stage in plan.stages:
        parts = {field.name: getattr(stage, field.name) for field in fields(type(stage))}
        run_rules(parts, nowhere, found)
    return Diagnostics(evolve(item, span=None, labels=(), file=plan.recipe) for item in found)
