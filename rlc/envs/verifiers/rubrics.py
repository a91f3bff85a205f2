"""The rewards of an environment of verifiers: the functions of its rubrics, weighted and added up.

Rubrics give 0 for a function that raises. Here that is a failure, never a reward.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from rlc.data.code.functions import explained
from rlc.envs.base import EnvError

# What functions raised while one rollout, or one group, was scored.
_RAISED: ContextVar[list[tuple[str, Exception]]] = ContextVar("raised")


class RubricError(EnvError):
    """A function of a rubric raised, or does not exist."""

    cause = "reward"


def prepare_rubrics(env: Any, weights: Mapping[str, float]) -> None:
    """Give the functions of an environment's rubrics these weights, by name, and note what they
    raise. Raise RubricError for a name that none of them has."""
    known = dict[str, None]()
    for rubric in _rubrics(env):
        for at, function in enumerate(rubric.funcs):
            name = function.__name__
            known[name] = None
            rubric.weights[at] = float(weights.get(name, rubric.weights[at]))
            rubric.funcs[at] = _noting(function)
    for name in weights:
        if name not in known:
            listed = ", ".join(f"`{one}`" for one in known) or "none"
            raise RubricError(f"its rubric has no function `{name}`; there is {listed}")


def _rubrics(env: Any) -> Iterator[Any]:
    """The rubrics of an environment that have functions, with those of environments within it."""
    waiting = [env.rubric]
    for inner in getattr(env, "env_map", {}).values():
        yield from _rubrics(inner)
    while waiting:
        rubric = waiting.pop(0)
        waiting += getattr(rubric, "rubrics", ())
        yield rubric


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which notes what it raises."""

    @functools.wraps(function)
    async def noting(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
            return await result if inspect.isawaitable(result) else result
        except Exception as error:
            _RAISED.get([]).append((function.__name__, error))
            raise

    return noting


async def score(rubric: Any, states: list[Any]) -> list[tuple[float, dict[str, float]]]:
    """Score the end states of a group, or of one rollout: the reward of each, and what its
    functions gave. Raise RubricError if a function raised."""
    raised = list[tuple[str, Exception]]()
    _RAISED.set(raised)
    if compares(rubric):
        await rubric.score_group(states)
    else:
        for state in states:
            await rubric.score_rollout(state)
    for state in states:
        await rubric.cleanup(state)
    if raised:
        name, error = raised[0]
        raise RubricError(f"`{name}` of its rubric raised {explained(error)}") from error
    return [
        (
            float(state["reward"]),
            {str(name): float(value) for name, value in (state["metrics"] or {}).items()},
        )
        for state in states
    ]


def compares(rubric: Any) -> bool:
    """Whether a function of a rubric scores the rollouts of a group together."""
    return bool(rubric.has_group_rewards)
