"""Advantages: how much better than its peers a rollout, or a turn, was.

A scheme's formulas are computed in float64, node by node, on the columns of a batch of episodes.
Three rules make exact zeros of what has nothing to teach: a mean of equals is their value, the
spread of equals is 0, and what is divided by a spread that is 0, or is itself 0, stays 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rlc.algo.episodes import Advantages, Bools, Components, Episodes, Floats, reward_to_go
from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.evaluate import FORWARD
from rlc.algo.expressions.formula import formula
from rlc.algo.expressions.program import INPUT, NUMBER, OperationNode, Program, Shape
from rlc.algo.expressions.vocabulary import (
    COMPONENTS,
    DISCOUNTED,
    LABELS,
    OPERATIONS,
    PART,
    RUNNING,
    TURNS,
    others_of,
    shapes,
    spreads,
)
from rlc.algo.scheme import AdvantageScheme, scope_of
from rlc.algo.scopes import Scopes, count, extremes, mean, quantile, rank, rms, std, total

_Array: TypeAlias = Any  # of a node, by its shape: (), (R,), (N,), (R, K) or (N, K)
_OVERFLOW = "the rewards are so large that what is computed of them overflows"
_BY_TURN: tuple[Shape, ...] = ("turn", "turn_component")
_BY_COMPONENT: tuple[Shape, ...] = ("component", "turn_component")


def compute_advantages(scheme: AdvantageScheme, episodes: Episodes) -> Advantages:
    """Apply a scheme: leave out the episodes that it does not keep, then compute its result of the
    others. A value of an episode is that of each of its turns; those left out get zeros.

    Raises:
        AlgorithmError: a reward that is not finite, an episode for which what the scheme requires
            does not hold, or rewards so large that the result overflows.
    """
    episodes.require_finite()
    turns_R = episodes.turns_R
    with np.errstate(all="ignore"):  # what overflows is refused
        kept_R = np.ones(len(turns_R), bool)
        if scheme.keep is not None:
            kept_R = BatchEvaluation(episodes).by_episode(scheme.keep) != 0
        left = BatchEvaluation(episodes if kept_R.all() else episodes.select(kept_R))
        if scheme.require is not None:
            _require(scheme, left)
        value = left.value(scheme.result)
        value_N = left.widened(value, scheme.result.shape, "turn")
    advantages_N = np.zeros(len(episodes.rewards_N))
    advantages_N[np.repeat(kept_R, turns_R)] = value_N
    if not np.isfinite(advantages_N).all():
        raise AlgorithmError(_OVERFLOW)
    return Advantages(advantages_N, kept_R, turns_R, left.observed)


def _require(scheme: AdvantageScheme, left: BatchEvaluation) -> None:
    assert scheme.require is not None
    wrong_R = left.by_episode(scheme.require) == 0
    if not wrong_R.any():
        return
    nodes = [node for node in scheme.require.nodes if scope_of(node) is not None]
    place = f"rollout {int(np.argmax(wrong_R))}"
    if nodes:
        place = left.batch.scope_name(str(scope_of(nodes[0])), int(np.argmax(wrong_R)))
    if any(node.op == "count over" for node in nodes):
        raise AlgorithmError(f"{place} has a single return; `{scheme.name}` needs at least two")
    *_, text = formula(scheme.require)
    raise AlgorithmError(f"{place} has no advantage: `{scheme.name}` requires {text} not to be 0")


class BatchEvaluation:
    """Computes programs on a batch. ``observed`` has what each moving average is of, by the
    position of its node: a value for each episode or turn."""

    def __init__(self, episodes: Episodes) -> None:
        self.batch, self.observed = episodes, dict[int, Floats]()
        self._scopes: dict[tuple[str, bool, int | None], Scopes] = {}
        self._first_R = np.cumsum(episodes.turns_R) - episodes.turns_R
        self._parts = episodes.components or Components.of_one(episodes.rewards_N)
        self._has_NK: Bools = ~np.isnan(self._parts.values_NK)

    def by_episode(self, program: Program) -> Floats:
        """Return a value for each episode, shape (R,)."""
        value_R: Floats = self.widened(self.value(program), program.shape, "episode")
        return value_R

    def value(self, program: Program) -> _Array:
        """Return the result of a program; of components that an episode does not have, NaN."""
        of, values, spread = shapes(program), list[_Array](), spreads(program)
        nothing: dict[int, _Array] = {}  # where a node is made of spreads that are all 0
        for at, node in enumerate(program.nodes):
            given, shape_of = [values[arg] for arg in node.args], [of[arg] for arg in node.args]
            value = self._node(at, node, given, shape_of, of[at])
            if spread[at]:
                made = [self.widened(nothing[x], of[x], of[at]) for x in node.args if spread[x]]
                nothing[at] = np.logical_and.reduce(made) if made else value == 0
            if node.op == "/":
                stays = self.widened(given[0] == 0, shape_of[0], of[at])
                if spread[node.args[1]]:
                    stays = stays | self.widened(nothing[node.args[1]], shape_of[1], of[at])
                value = np.where(stays, 0.0, value)
            if of[at] in _BY_COMPONENT:
                value = np.where(self._has(of[at]), value, np.nan)
            values.append(value)
        return values[program.output]

    def _node(
        self,
        at: int,
        node: OperationNode,
        given: Sequence[_Array],
        of: Sequence[Shape],
        shape: Shape,
    ) -> _Array:
        if node.op == NUMBER:
            return np.float64(node.value or 0.0)
        if node.op == INPUT:
            return self._input(node.name or "")
        if node.op == RUNNING:
            self.observed[at] = self.widened(given[0], of[0], shape)
            before_R = self.batch.running.get(at, np.zeros(len(self.batch.turns_R)))
            return self.widened(before_R, "episode", shape)
        if node.op == DISCOUNTED:
            return self._each(partial(self._to_go, float(given[1])), given[0])
        if node.over in (TURNS, COMPONENTS):
            return self._reduced(node, given, of)
        if node.over is not None:
            return self._statistic(node, given, of)
        wide = [self.widened(one, own, shape) for one, own in zip(given, of, strict=True)]
        value = np.asarray(FORWARD[node.op](*wide))
        if node.op in "+-*" and np.isinf(value).any() and not any(np.isinf(x).any() for x in wide):
            raise AlgorithmError(_OVERFLOW)
        return value

    # Shapes

    def widened(self, value: _Array, of: Shape, to: Shape) -> _Array:
        """Return a value in a shape that it fits: the same in all turns, of all components."""
        if of == to or (of == "number" and to != "episode" and to != "turn"):
            return value
        turns_R = self.batch.turns_R
        if of == "number":
            return np.full(len(turns_R if to == "episode" else self.batch.rewards_N), value)
        if to in _BY_TURN and of not in _BY_TURN:
            value = np.repeat(value, turns_R, axis=0)
        if to in _BY_COMPONENT and of not in _BY_COMPONENT:
            value = value[:, None]
        return value

    def _has(self, shape: Shape) -> Bools:
        """Return which components there are, of the shape of their values."""
        return self._has_NK if shape in _BY_TURN else self._has_NK[self._first_R]

    def _each(self, function: Callable[..., Floats], value: _Array, *more: _Array) -> _Array:
        """Apply a function to a column, or to those of all components, with columns beside it."""
        if value.ndim == 1:
            return function(value, *more)
        columns = zip(value.T, *(one.T for one in more), strict=True)
        return np.stack([function(np.nan_to_num(one), *rest) for one, *rest in columns], axis=1)

    # Inputs

    def _input(self, name: str) -> _Array:
        batch = self.batch
        match name:
            case "reward":
                return batch.rewards_N
            case "parts":
                return self._parts.values_NK
            case "weights":
                return self._parts.weight_NK[self._first_R]
            case "tokens":
                return batch.tokens_N.astype(np.float64)
            case "length":
                counted = np.concatenate(([0], np.cumsum(batch.tokens_N)))
                ends_R = np.cumsum(batch.turns_R)
                return (counted[ends_R] - counted[ends_R - batch.turns_R]).astype(np.float64)
            case "turns":
                return batch.turns_R.astype(np.float64)
            case "truncated" | "failed":
                return np.asarray(getattr(batch, f"{name}_R"), np.float64)
            case "step":
                return np.float64(batch.step)
        label, _, word = name.partition(" == ")
        if label in LABELS:
            return np.array([one == word[1:-1] for one in batch.names(label)], np.float64)
        part = name.removeprefix(PART)
        if part not in self._parts.names:
            known = ", ".join(filter(None, self._parts.names)) or "one number"
            raise AlgorithmError(f"the advantage reads `{name}`, and the reward is {known}")
        return np.nan_to_num(self._parts.values_NK[:, self._parts.names.index(part)])

    # Over the turns of an episode, and over components

    def _to_go(self, gamma: float, x_N: Floats) -> Floats:
        return reward_to_go(gamma, x_N, self.batch.turns_R)

    def _reduced(self, node: OperationNode, given: Sequence[_Array], of: Sequence[Shape]) -> _Array:
        word = OPERATIONS[node.op].word
        weight = given[1] if len(given) > 1 else np.float64(1.0)
        if node.over == COMPONENTS:
            has = self._has(of[0])
            wide = np.where(has, given[0], 0.0)
            weights = np.where(
                has, np.broadcast_to(self.widened(weight, of[1], of[0]), has.shape), 0
            )
            return _over_components(word, wide, weights)
        if word in ("first", "last"):
            at_R = self._first_R if word == "first" else np.cumsum(self.batch.turns_R) - 1
            return given[0][at_R]
        wide = np.broadcast_to(self.widened(weight, of[1], of[0]), given[0].shape)
        return self._each(partial(self._over_turns, word), given[0], wide)

    def _over_turns(self, word: str, x_N: Floats, weight_N: Floats) -> Floats:
        weighted = not (weight_N == 1).all()
        if word in ("min", "max"):
            sign = 1.0 if word == "max" else -1.0
            signed_N = np.where(weight_N > 0, sign * x_N, -np.inf)
            best_R = np.maximum.reduceat(signed_N, self._first_R)
            found_R: Floats = np.where(best_R == -np.inf, x_N[self._first_R], sign * best_R)
            return found_R
        sums_R: Floats = self._to_go(1.0, x_N * weight_N if weighted else x_N)[self._first_R]
        if word == "sum":
            return sums_R
        counts_N = (weight_N > 0) * 1.0 if word == "count" else weight_N
        counts_R: Floats = np.add.reduceat(counts_N, self._first_R)
        if word == "mean":
            counts_R = np.where(counts_R > 0, sums_R / counts_R, x_N[self._first_R])
        return counts_R

    # Over scopes

    def _statistic(
        self, node: OperationNode, given: Sequence[_Array], of: Sequence[Shape]
    ) -> _Array:
        """Return a statistic over a scope for each of its members, of components for each."""
        scope, others = others_of(node.over) or str(node.over), others_of(node.over) is not None
        by_turn = of[0] in _BY_TURN
        rest = [self.widened(x, o, of[0]) for x, o in zip(given[1:], of[1:], strict=True)]
        if of[0] not in _BY_COMPONENT:
            scopes = self._partition(scope, by_turn)
            return _over_scopes(node.op, scopes, others, given[0], rest)
        has, found = self._has(of[0]), np.full_like(given[0], np.nan)
        for k in range(has.shape[1]):
            there_V = has[:, k]
            own = [np.broadcast_to(x, has.shape)[there_V, k] for x in rest]
            if there_V.any():
                scopes = self._partition(scope, by_turn, k)
                values_V = given[0][there_V, k]
                found[there_V, k] = _over_scopes(node.op, scopes, others, values_V, own)
        return found

    def _partition(self, scope: str, by_turn: bool, component: int | None = None) -> Scopes:
        """Return a partition of the episodes or turns, those that have a component; made once."""
        key = (scope, by_turn, component)
        if key not in self._scopes:
            label_V = self.batch.scope_labels(scope)
            label_V = np.repeat(label_V, self.batch.turns_R) if by_turn else label_V
            if component is not None:
                has_VK = self._has("turn_component" if by_turn else "component")
                label_V = label_V[has_VK[:, component]]
            self._scopes[key] = Scopes(label_V)
        return self._scopes[key]


def _over_components(word: str, x_VK: Floats, weight_VK: Floats) -> Floats:
    """Return a statistic of the components that weigh anything; 0 without one."""
    if word in ("min", "max"):
        sign = 1.0 if word == "max" else -1.0
        best_V = np.where(weight_VK > 0, sign * x_VK, -np.inf).max(axis=1, initial=-np.inf)
        found_V: Floats = np.where(best_V == -np.inf, 0.0, sign * best_V)
        return found_V
    if word == "count":
        return np.asarray((weight_VK > 0).sum(axis=1), np.float64)
    sum_V, weight_V = np.zeros(len(x_VK)), weight_VK.sum(axis=1)
    for x_V, own_V in zip(x_VK.T, weight_VK.T, strict=True):
        sum_V = sum_V + own_V * x_V
    return sum_V if word == "sum" else np.where(weight_V != 0, sum_V / weight_V, 0.0)


def _over_scopes(
    op: str, scopes: Scopes, others: bool, x_V: Floats, rest: Sequence[_Array]
) -> Floats:
    """Return a statistic of each value's scope. ``rest`` has the values of its other parameters."""
    if not len(x_V):
        return x_V
    wide = (np.broadcast_to(one, x_V.shape) for one in rest)
    given = dict(zip(OPERATIONS[op].params[1:], wide, strict=True))
    weight_V = None if (given["weight"] == 1).all() else given["weight"]
    columns = scopes, x_V, weight_V
    match OPERATIONS[op].word:
        case "mean":
            found_V = mean(*columns, others)
        case "sum":
            found_V = total(*columns, others)
        case "count":
            found_V = count(*columns, others)
        case "min":
            found_V, _ = extremes(*columns, others)
        case "max":
            _, found_V = extremes(*columns, others)
        case "rank":
            found_V = rank(*columns)
        case "quantile":
            found_V = quantile(*columns, float(given["q"][0]))
        case word:
            deviation = std if word == "std" else rms
            found_V = deviation(*columns, others, float(given["ddof"][0]))
    if not np.isfinite(found_V).all():
        raise AlgorithmError(_OVERFLOW)
    if "singleton" in given:
        found_V = np.where(scopes.spread(scopes.size_S == 1), given["singleton"], found_V)
    return found_V
