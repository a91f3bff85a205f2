"""Advantages: how much better than its peers a rollout, or a turn, was.

A scheme's formulas are computed in float64, node by node, on the columns of a batch of episodes.
Three rules make exact zeros of what has nothing to teach: a mean of equals is their value, the
spread of equals is 0, and what is divided by a spread that is 0, or is itself 0, stays 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from rlc.algo.episodes import (
    Advantages,
    Bools,
    Components,
    Episodes,
    Floats,
    Ints,
    reward_to_go,
    split,
)
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
    TOKENS,
    TURNS,
    input_of,
    others_of,
    shapes,
    spreads,
)
from rlc.algo.scheme import AdvantageScheme, scope_of
from rlc.algo.scopes import Scopes, count, extremes, mean, quantile, rank, rms, std, total

_Array: TypeAlias = Any  # of a node, by its shape: (), (R,), (N,), (A,), (R, K) or (N, K)
_OVERFLOW = "the rewards are so large that what is computed of them overflows"
_BY_TURN: tuple[Shape, ...] = ("turn", "turn_component", "turn_token")
_BY_COMPONENT: tuple[Shape, ...] = ("component", "turn_component")


def compute_advantages(scheme: AdvantageScheme, episodes: Episodes) -> Advantages:
    """Apply a scheme: leave out the episodes that it does not keep, then compute its result of the
    others. A value of an episode is that of each of its turns; those left out get zeros.

    Raises:
        AlgorithmError: a reward or logprob that is not finite, an episode for which what the scheme
            requires does not hold, or rewards so large that the result overflows.
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
        if scheme.by_token:
            return _of_tokens(episodes, kept_R, value, left.observed)
        value_N = left.widened(value, scheme.result.shape, "turn")
    advantages_N = np.zeros(len(episodes.rewards_N))
    advantages_N[np.repeat(kept_R, turns_R)] = value_N
    if not np.isfinite(advantages_N).all():
        raise AlgorithmError(_OVERFLOW)
    return Advantages(advantages_N, kept_R, turns_R, left.observed)


def _of_tokens(
    episodes: Episodes, kept_R: Bools, value_A: Floats, observed: Mapping[int, Floats]
) -> Advantages:
    """Return the advantages of tokens, given those of the episodes that are kept."""
    tokens_N, length_R = episodes.tokens_N, episodes.lengths
    advantages_A = np.zeros(int(tokens_N.sum()))
    advantages_A[np.repeat(kept_R, length_R)] = value_A
    if not np.isfinite(advantages_A).all():
        raise AlgorithmError(_OVERFLOW)
    ones_A = np.ones(len(advantages_A))
    mean_N = _over_rows("mean", tokens_N, advantages_A, ones_A)
    turns_R = episodes.turns_R
    return Advantages(mean_N, kept_R, turns_R, observed, split(advantages_A, length_R))


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
            counts_R = self._counts(TURNS, of[0])
            return self._each(lambda x_M: reward_to_go(float(given[1]), x_M, counts_R), given[0])
        if node.over in (TOKENS, TURNS, COMPONENTS):
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
        """Return a value in a shape that it fits: the same in all turns, of all components, on all
        tokens."""
        turns_R, tokens_N = self.batch.turns_R, self.batch.tokens_N
        sizes = {"episode": len(turns_R), "turn": len(tokens_N), "turn_token": int(tokens_N.sum())}
        if of == "number" and to in sizes:
            return np.full(sizes[to], value)
        if of in (to, "number"):
            return value
        if to in _BY_TURN and of not in _BY_TURN:
            value = np.repeat(value, turns_R, axis=0)
        if to in _BY_COMPONENT and of not in _BY_COMPONENT:
            value = value[:, None]
        return np.repeat(value, tokens_N) if to == "turn_token" else value

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
                return batch.lengths.astype(np.float64)
            case "position":
                begin_N = np.cumsum(batch.tokens_N) - batch.tokens_N
                place_A = np.arange(int(batch.tokens_N.sum())) - np.repeat(begin_N, batch.tokens_N)
                return place_A + 1.0
            case "turns":
                return batch.turns_R.astype(np.float64)
            case "truncated" | "failed":
                return np.asarray(getattr(batch, f"{name}_R"), np.float64)
            case "step":
                return np.float64(batch.step)
        if name in batch.of_tokens:
            return batch.of_tokens[name]
        if input_of("advantage", name).shape == "turn_token":
            raise AlgorithmError(f"the advantage reads `{name}`, which is not there")
        label, _, word = name.partition(" == ")
        if label in LABELS:
            return np.array([one == word[1:-1] for one in batch.names(label)], np.float64)
        part = name.removeprefix(PART)
        if part not in self._parts.names:
            known = ", ".join(filter(None, self._parts.names)) or "one number"
            raise AlgorithmError(f"the advantage reads `{name}`, and the reward is {known}")
        return np.nan_to_num(self._parts.values_NK[:, self._parts.names.index(part)])

    # Over tokens, over the turns of an episode, and over components

    def _counts(self, over: str, of: Shape) -> Ints:
        """Return how many values there are in each turn, or in each episode."""
        if of == "turn_token":
            return self.batch.tokens_N if over == TOKENS else self.batch.lengths
        return self.batch.turns_R

    def _reduced(self, node: OperationNode, given: Sequence[_Array], of: Sequence[Shape]) -> _Array:
        word = OPERATIONS[node.op].word
        weight: _Array = np.float64(1.0)
        weighs: Shape = "number"
        if len(given) > 1:
            weight, weighs = given[1], of[1]
        if node.over == COMPONENTS:
            has = self._has(of[0])
            wide = np.where(has, given[0], 0.0)
            weights = np.where(
                has, np.broadcast_to(self.widened(weight, weighs, of[0]), has.shape), 0
            )
            return _over_components(word, wide, weights)
        wide = np.broadcast_to(self.widened(weight, weighs, of[0]), given[0].shape)
        counts_V = self._counts(str(node.over), of[0])
        return self._each(partial(_over_rows, word, counts_V), given[0], wide)

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


def _over_rows(word: str, counts_V: Ints, x_M: Floats, weight_M: Floats) -> Floats:
    """Return a statistic of each row of a column, of rows with so many values; 0 of none."""
    there_V = counts_V > 0
    if there_V.all():
        return _over_full_rows(word, counts_V, x_M, weight_M)
    found_V = np.zeros(len(counts_V))
    if there_V.any():
        found_V[there_V] = _over_full_rows(word, counts_V[there_V], x_M, weight_M)
    return found_V


def _over_full_rows(word: str, counts_V: Ints, x_M: Floats, weight_M: Floats) -> Floats:
    ends_V = np.cumsum(counts_V)
    first_V = ends_V - counts_V
    if word in ("first", "last"):
        found_V: Floats = x_M[first_V if word == "first" else ends_V - 1]
        return found_V
    weighted = not (weight_M == 1).all()
    if word in ("min", "max"):
        sign = 1.0 if word == "max" else -1.0
        signed_M = np.where(weight_M > 0, sign * x_M, -np.inf)
        best_V = np.maximum.reduceat(signed_M, first_V)
        return np.where(best_V == -np.inf, x_M[first_V], sign * best_V)
    sums_V: Floats = reward_to_go(1.0, x_M * weight_M if weighted else x_M, counts_V)[first_V]
    if word == "sum":
        return sums_V
    weights_M = (weight_M > 0) * 1.0 if word == "count" else weight_M
    weights_V: Floats = np.add.reduceat(weights_M, first_V)
    if word == "mean":
        return np.where(weights_V > 0, sums_V / weights_V, x_M[first_V])
    return weights_V


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
