"""Weighted sums of environments."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from rlc.check.settle import settle
from rlc.check.values import Value, unwrap
from rlc.plan.environments import EnvPlan
from rlc.plan.leaves import children_of

Mixture = tuple[EnvPlan, ...]


def single(env: Value) -> Mixture:
    """A mixture of one. Its leaves get origins of their own: a mixture may have several sources."""
    record = env.data
    leaves = {
        name: evolve(env, type="any", data=part)
        for name, part in (children_of(record) or {}).items()
        if isinstance(part, str | int | float | None)
    }
    leaves["weight"] = evolve(leaves["weight"], origin="default")
    return (evolve(record, **leaves),)


def weighted(weight: Value, envs: Mixture) -> Mixture:
    """Every weight times ``weight``: ``3 * (2 * a + b)`` is ``6 * a + 3 * b``."""

    def scaled(env: EnvPlan) -> Any:
        return evolve(weight, data=float(weight.data * unwrap(env.weight)))

    return tuple(evolve(env, weight=scaled(env)) for env in envs)


def name_single(name: Any, envs: Mixture) -> Mixture:
    """A declared environment takes the declaration's name; the parts of a mixture keep theirs."""
    return (evolve(envs[0], name=name),) if len(envs) == 1 else envs


def merged(envs: Mixture) -> Mixture:
    """Return each environment once, with all its weight; different ones have different names."""
    parts: list[EnvPlan] = []
    known: list[EnvPlan] = []
    for env in envs:
        facts = settle(evolve(env, weight=0.0))  # all but its weight and where it was written
        same = next((i for i, one in enumerate(known) if one == facts), None)
        if same is None:
            known.append(facts)
            parts.append(evolve(env, name=_unique(env, parts)))
        else:
            weight: Any = parts[same].weight
            total = evolve(weight, data=weight.data + unwrap(env.weight))
            parts[same] = evolve(parts[same], weight=total)
    return tuple(parts)


def _unique(env: EnvPlan, parts: list[EnvPlan]) -> Any:
    """The environment's name, with a number if a different one has it already."""
    name, taken = str(unwrap(env.name)), {str(unwrap(part.name)) for part in parts}
    if name not in taken:
        return env.name
    number = next(n for n in range(2, len(parts) + 3) if f"{name}_{n}" not in taken)
    numbered = f"{name}_{number}"
    return evolve(env.name, data=numbered) if isinstance(env.name, Value) else numbered
