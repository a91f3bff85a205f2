"""Weighted sums of environments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from attrs import evolve

from rlc.check.settle import settle
from rlc.check.values import Value, said, unwrap
from rlc.lang.diagnostics import Diagnostics, Label
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


def report_tasks(given: Mapping[str, Value], found: Diagnostics) -> bool:
    """Whether what is given as the tasks of an agent is one environment, and what rewards it is
    given once; else this is reported."""
    tasks, graders = given["tasks"], given["grader"]
    if tasks.data is None:
        message = "nothing says what the agent works on"
        found.error("RL0205", tasks.span, message, 'for example `tasks = rows("shop.jsonl")`')
        return False
    parts: Mixture = tasks.data
    if len(parts) > 1 or unwrap(parts[0].weight) != 1.0:
        message = "the tasks of an agent are those of one environment, without a weight"
        advice = "give each its own agent, and mix these: `3 * agent(…) + agent(…)`"
        found.error("RL0800", tasks.span, message, advice)
        return False
    own: Any = parts[0].graders
    if graders.data and isinstance(own, Value) and not said(own.origin).startswith("default of "):
        label = Label(own.span, "and here")
        message = "what rewards the agent is given twice, with it and with its tasks"
        found.error("RL0803", graders.span, message, "keep one of them", label)
        return False
    return True


def weighted(weight: Value, envs: Mixture) -> Mixture:
    """Every weight times ``weight``: ``3 * (2 * a + b)`` is ``6 * a + 3 * b``."""

    def scaled(env: EnvPlan) -> Any:
        return evolve(weight, data=float(weight.data * unwrap(env.weight)))

    return tuple(evolve(env, weight=scaled(env)) for env in envs)


def name_single(name: Any, envs: Mixture) -> Mixture:
    """A declared environment takes the declaration's name; the parts of a mixture keep theirs."""
    return (evolve(envs[0], name=name),) if len(envs) == 1 else envs


def added(left: Mixture, right: Mixture) -> Mixture:
    """A sum; one environment that stands in both is one part, so that ``x + x`` does not double.

    Its leaves identify it: those of a declared environment are the same objects wherever it is
    named. What is written twice stays apart until :func:`merged`.
    """
    parts = {_identity(env): env for env in left}
    for env in right:
        earlier = parts.get(_identity(env))
        parts[_identity(env)] = env if earlier is None else _heavier(earlier, env)
    return tuple(parts.values())


def _identity(env: EnvPlan) -> tuple[int, ...]:
    return tuple(id(leaf) for name, leaf in (children_of(env) or {}).items() if name != "weight")


def _heavier(env: EnvPlan, by: EnvPlan) -> EnvPlan:
    weight: Any = env.weight
    return evolve(env, weight=evolve(weight, data=weight.data + unwrap(by.weight)))


def merged(envs: Mixture) -> Mixture:
    """Return each environment once, with all its weight; different ones have different names."""
    parts: list[EnvPlan] = []
    known: defaultdict[str, list[tuple[int, EnvPlan]]] = defaultdict(list)
    taken: set[str] = set()
    for env in envs:
        facts = settle(evolve(env, weight=0.0))  # all but its weight and where it was written
        alike = known[facts.name]
        same = next((index for index, one in alike if one == facts), None)
        if same is None:
            alike.append((len(parts), facts))
            parts.append(evolve(env, name=_unique(env, taken)))
            taken.add(str(unwrap(parts[-1].name)))
        else:
            parts[same] = _heavier(parts[same], env)
    return tuple(parts)


def _unique(env: EnvPlan, taken: Collection[str]) -> Any:
    """The environment's name, with a number if a different one has it already."""
    name = str(unwrap(env.name))
    if name not in taken:
        return env.name
    number = next(n for n in range(2, len(taken) + 3) if f"{name}_{n}" not in taken)
    numbered = f"{name}_{number}"
    return evolve(env.name, data=numbered) if isinstance(env.name, Value) else numbered
