"""Advantages: how much better than its peers a rollout, or a turn, was.

Everything is float64. Whether a scope is constant is decided by ``max == min`` before anything is
subtracted or divided, and a constant scope then gives exact zeros: the mean of three times 0.1
is one bit off 0.1, and that bit divided by its own spread is an advantage of -1. Statistics of a
scope, the values that share a label, do not depend on the order they come in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from rlc.algo.episodes import Advantages, Bools, Components, Episodes, Floats, Ints, compute_returns
from rlc.algo.errors import AlgorithmError
from rlc.algo.scheme import (
    AdvantageScheme,
    AdvantageStep,
    Baseline,
    Clip,
    RunningBaseline,
    Scale,
    Scope,
    WeightedSum,
    sums_components,
    task_scope,
)
from rlc.records import evolve, frozen

T = TypeVar("T", bound=np.generic)

_DIGIT = 16  # bits of a label that are sorted at once, in linear time


def stable_order(label_V: Ints) -> Ints | None:
    """Return the order that sorts integer labels, ties as they come; None if they are sorted.

    Labels within 32 bits are sorted digit by digit, three times as fast as by comparing.
    """
    if not (label_V[1:] < label_V[:-1]).any():
        return None
    low = int(label_V.min())
    span = int(label_V.max()) - low
    if span >> 2 * _DIGIT:
        return np.argsort(label_V, kind="stable")
    offset_V = label_V - low
    order_V: Ints = np.argsort(offset_V.astype(np.uint16), kind="stable")
    if span >> _DIGIT:
        high_V = (offset_V >> _DIGIT).astype(np.uint16)
        order_V = order_V[np.argsort(high_V[order_V], kind="stable")]
    return order_V


@frozen(eq=False)
class ScopeSummary:
    """Of each scope: the sum of the weights, the weighted mean, and the range of the values that
    weigh anything."""

    weight_S: Floats
    mean_S: Floats
    low_S: Floats
    high_S: Floats

    @property
    def constant(self) -> Bools:
        """True for scopes whose values are all equal, shape (S,)."""
        return self.high_S <= self.low_S


class Scopes:
    """A partition of V values into S scopes by integer label; fastest where they are sorted.

    Scopes of one size form a matrix, one row a scope, so each statistic is a few array
    operations. Addends are sorted within their row before they are added: floating-point sums
    depend on the order of the addends, and an advantage must not depend on the batch's.
    """

    def __init__(self, label_V: Ints) -> None:
        self._order_V = stable_order(label_V)
        sorted_V = label_V if self._order_V is None else label_V[self._order_V]
        first_V = np.ones(len(label_V), dtype=bool)
        first_V[1:] = sorted_V[1:] != sorted_V[:-1]
        starts_S = np.flatnonzero(first_V)
        self.size_S: Ints = np.diff(starts_S, append=len(label_V))
        self._members = list(self._members_by_size(starts_S))

    @cached_property
    def _scope(self) -> Ints:
        scope_V: Ints = np.repeat(np.arange(len(self.size_S)), self.size_S)
        if self._order_V is None:
            return scope_V
        out_V = np.empty_like(scope_V)
        out_V[self._order_V] = scope_V
        return out_V

    def spread(self, x_S: npt.NDArray[T]) -> npt.NDArray[T]:
        """Repeat one item per scope for each of the scope's values, shape (V,)."""
        return np.repeat(x_S, self.size_S) if self._order_V is None else x_S[self._scope]

    def total(self, x_V: Floats) -> Floats:
        """Return the sum of each scope, shape (S,), bitwise the same in any order of the values."""
        return self._reduced(x_V, lambda rows_Pn: np.sort(rows_Pn, axis=1).sum(axis=1))

    def summary(self, x_V: Floats, weight_V: Floats | None = None) -> ScopeSummary:
        """Return weights, mean and range of each scope; without weights each value counts once.

        Weights are whole numbers, whose sums are exact in any order.
        """
        if weight_V is None:
            weight_S = self.size_S.astype(np.float64)
            total_S, low_S, high_S = (np.empty(len(self.size_S)) for _ in range(3))
            for scopes_P, members_Pn in self._members:
                sorted_Pn = np.sort(self._rows(x_V, members_Pn), axis=1)
                total_S[scopes_P] = sorted_Pn.sum(axis=1)
                low_S[scopes_P], high_S[scopes_P] = sorted_Pn[:, 0], sorted_Pn[:, -1]
        else:
            weight_S = self._reduced(weight_V, _sum)
            total_S = self.total(weight_V * x_V)
            low_V = high_V = x_V
            if not (weight_V > 0).all():
                low_V = np.where(weight_V > 0, x_V, np.inf)
                high_V = np.where(weight_V > 0, x_V, -np.inf)
            low_S, high_S = self._reduced(low_V, _smallest), self._reduced(high_V, _largest)
        return ScopeSummary(weight_S, total_S / weight_S, low_S, high_S)

    def best_of_others(self, x_V: Floats) -> Floats:
        """Return for each value the largest of the others in its scope; -inf without others."""
        best_S, second_S = self._reduced(x_V, _largest), self._reduced(x_V, _second)
        best_V = self.spread(best_S)
        return np.where(x_V == best_V, self.spread(second_S), best_V)

    def _reduced(self, x_V: Floats, reduce: Callable[[Floats], npt.ArrayLike]) -> Floats:
        out_S = np.empty(len(self.size_S))
        for scopes_P, members_Pn in self._members:
            out_S[scopes_P] = reduce(self._rows(x_V, members_Pn))
        return out_S

    def _rows(self, x_V: Floats, members_Pn: Ints | tuple[int, int]) -> Floats:
        return x_V.reshape(members_Pn) if isinstance(members_Pn, tuple) else x_V[members_Pn]

    def _members_by_size(
        self, starts_S: Ints
    ) -> Iterator[tuple[Ints | slice, Ints | tuple[int, int]]]:
        """Yield for each size the scopes that have it, and where their values are; a shape if the
        values themselves are the matrix."""
        sizes_D = np.unique(self.size_S)
        if self._order_V is None and len(sizes_D) == 1:
            yield slice(None), (len(starts_S), int(sizes_D[0]))
            return
        for size in sizes_D.tolist():
            scopes_P = np.flatnonzero(self.size_S == size)
            at_Pn = starts_S[scopes_P, None] + np.arange(size)
            yield scopes_P, at_Pn if self._order_V is None else self._order_V[at_Pn]


_sum = partial(np.sum, axis=1)
_smallest = partial(np.min, axis=1)
_largest = partial(np.max, axis=1)


def _second(rows_Pn: Floats) -> Floats | float:
    return np.sort(rows_Pn, axis=1)[:, -2] if rows_Pn.shape[1] > 1 else -np.inf


def compute_advantages(scheme: AdvantageScheme, episodes: Episodes) -> Advantages:
    """Apply a scheme: returns, the drop of constant groups, then its steps in order.

    An episode scheme spreads its one value over the rollout's turns. Dropped rollouts get zeros
    and take no part in any later statistic. A group with a single value is not called constant;
    what becomes of it is each baseline's ``singleton``. Where a step counts tokens, a value without
    tokens takes no part and gets zero.

    Raises:
        AlgorithmError: a reward that is not finite, a singleton under ``singleton = error``, or
            rewards so large that the result overflows.
    """
    by_turn, turns_R = scheme.returns.unit == "turn", episodes.turns_R
    with np.errstate(all="ignore"):  # what overflows is refused after each step
        return_V = compute_returns(scheme.returns, episodes.rewards_N, turns_R)
        _require_representable(return_V)
        state, steps = _begin(episodes, by_turn, return_V), scheme.steps
        if sums_components(scheme):
            state, steps = _summed(scheme, episodes, state)
        elif scheme.constant == "drop":
            state = _without_constant(scheme, state)
        state = _applied(steps, state)
    all_V, kept_V = state.by_item(len(return_V))
    if by_turn:
        return Advantages(all_V, return_V, kept_V[np.cumsum(turns_R) - 1], turns_R)
    return Advantages(np.repeat(all_V, turns_R), return_V, kept_V, turns_R)


def _begin(episodes: Episodes, by_turn: bool, return_V: Floats) -> _State:
    peers = _Peers(episodes, by_turn, return_V)
    if (order_V := stable_order(peers.label("group"))) is not None:
        peers = evolve(peers, item_V=order_V)
    return _State(peers, peers.returns, np.zeros(len(peers.returns), dtype=bool))


def _without_constant(scheme: AdvantageScheme, state: _State) -> _State:
    groups = state.peers.over(task_scope(scheme))
    drop_S = groups.summary(state.value_V).constant & (groups.size_S > 1)
    return state.select(~groups.spread(drop_S)) if drop_S.any() else state


def _applied(steps: Sequence[AdvantageStep], state: _State) -> _State:
    for step in steps:
        if isinstance(step, Baseline):
            state = _subtract(step, state)
        elif isinstance(step, Scale):
            state = _divide(step, state)
        elif isinstance(step, RunningBaseline):
            state = evolve(state, value_V=state.value_V - state.peers.running)
        elif isinstance(step, Clip):
            state = evolve(state, value_V=np.clip(state.value_V, step.low, step.high))
        _require_representable(state.value_V)
    return state


def _summed(
    scheme: AdvantageScheme, episodes: Episodes, whole: _State
) -> tuple[_State, tuple[AdvantageStep, ...]]:
    """Apply the steps before the weighted sum to each component, among the rollouts that have it:
    ``A_i = Σ_k w_k A_ik``. Return the sums, and the steps that are left.

    A reward that is one number is its only component. What is dropped in one component is dropped;
    of groups of equals those that are equal in all components.
    """
    at = next(i for i, step in enumerate(scheme.steps) if isinstance(step, WeightedSum))
    of, count = episodes.components, len(whole.peers.all_V)
    if of is None:
        of = Components(episodes.rewards_N[:, None], np.ones((len(episodes.rewards_N), 1)))
    by_turn, turns_R = whole.peers.by_turn, episodes.turns_R
    first_V = np.arange(count) if by_turn else np.cumsum(turns_R) - turns_R
    sum_V, keep_V, differs_V = np.zeros(count), np.ones(count, bool), np.zeros(count, bool)
    for value_N, weight_N in zip(of.values_NK.T, of.weight_NK.T, strict=True):
        has_V = ~np.isnan(value_N[first_V])
        reward_N = np.where(np.isnan(value_N), 0.0, value_N)
        return_V = compute_returns(scheme.returns, reward_N, turns_R)
        state = _begin(episodes, by_turn, return_V)
        state = state.select(has_V[state.peers.item_V])
        if scheme.constant == "drop":
            _, apart_V = _without_constant(scheme, state).by_item(count)
            differs_V |= apart_V
        value_V, kept_V = _applied(scheme.steps[:at], state).by_item(count)
        sum_V += weight_N[first_V] * value_V
        keep_V &= kept_V | ~has_V
    if scheme.constant == "drop":
        keep_V &= differs_V
    item_V = whole.peers.item_V
    summed = evolve(whole, value_V=sum_V[item_V]).select(keep_V[item_V])
    _require_representable(summed.value_V)
    return summed, scheme.steps[at + 1 :]


@frozen(eq=False)
class _Peers:
    """The values that are compared: what stays the same from step to step.

    They are ordered by group, so that groups are found by looking at neighbours only.
    ``item_V`` says where each belongs among the returns, one a rollout or one a turn, as they
    come in.
    """

    episodes: Episodes
    by_turn: bool
    all_V: Floats  # the returns as they come in
    item_V: Ints | slice = slice(None)

    @cached_property
    def returns(self) -> Floats:
        return self.all_V[self.item_V]

    @cached_property
    def tokens(self) -> Floats:
        tokens_N, turns_R = self.episodes.tokens_N, self.episodes.turns_R
        if self.by_turn:
            return tokens_N[self.item_V].astype(np.float64)
        counted, ends_R = np.concatenate(([0], np.cumsum(tokens_N))), np.cumsum(turns_R)
        tokens_R: Ints = counted[ends_R] - counted[ends_R - turns_R]
        return tokens_R[self.item_V].astype(np.float64)

    @property
    def running(self) -> Floats:
        """The running baseline of each value."""
        running_R, turns_R = self.episodes.running_R, self.episodes.turns_R
        if running_R is None:
            return np.zeros(len(self.returns))
        running_V: Floats = np.repeat(running_R, turns_R) if self.by_turn else running_R
        return running_V[self.item_V]

    def label(self, what: str) -> Ints:
        """Return the label of each value: ``group``, ``role`` or ``env``."""
        label_R: Ints = getattr(self.episodes, f"{what}_R")
        label_V = np.repeat(label_R, self.episodes.turns_R) if self.by_turn else label_R
        return label_V[self.item_V]

    @cached_property
    def _scopes(self) -> dict[Scope, Scopes]:
        return {}

    def over(self, scope: Scope) -> Scopes:
        """Return the partition of the values by a scope, made once."""
        if scope not in self._scopes:
            if scope == "batch":
                label_V = np.zeros(len(self.returns), dtype=np.int64)
            elif scope == "role":
                _, role_V = np.unique(self.label("role"), return_inverse=True)
                group = self.over("group")
                group_V = group.spread(np.arange(len(group.size_S)))
                label_V = group_V * (role_V.max(initial=0) + 1) + role_V
            else:
                label_V = self.label("role" if scope == "batch_role" else scope)
            self._scopes[scope] = Scopes(label_V)
        return self._scopes[scope]

    def name(self, scope: Scope, at: int) -> str:
        """Return the name, in a message, of the scope of value ``at``."""
        if scope == "batch":
            return "the batch"
        parts = {"role": ("role", "group"), "batch_role": ("role",)}.get(scope, (scope,))
        return " of ".join(f"{part} {int(self.label(part)[at])}" for part in parts)

    def select(self, keep_V: Bools) -> _Peers:
        item_V = np.arange(len(keep_V)) if isinstance(self.item_V, slice) else self.item_V
        return evolve(self, item_V=item_V[keep_V])


@frozen(eq=False)
class _State:
    """The values between two steps."""

    peers: _Peers
    value_V: Floats
    raw_V: Bools  # single values that a baseline left as they were

    def select(self, keep_V: Bools) -> _State:
        return _State(self.peers.select(keep_V), self.value_V[keep_V], self.raw_V[keep_V])

    def by_item(self, count: int) -> tuple[Floats, Bools]:
        """Return the value of each of ``count`` items, zero where it was dropped, and which were
        kept."""
        all_V, kept_V = np.zeros(count), np.zeros(count, dtype=bool)
        all_V[self.peers.item_V], kept_V[self.peers.item_V] = self.value_V, True
        return all_V, kept_V


def _require_representable(value_V: Floats) -> None:
    if not np.isfinite(value_V).all():
        raise AlgorithmError("the rewards are so large that their returns or advantages overflow")


def _subtract(step: Baseline, state: _State) -> _State:
    """Subtract the baseline b of each scope; ``w`` is the weight of a value, ``W`` their sum.

    mean: ``b = Σ w x / W``; length_weighted (OPO, arXiv 2505.23585): the same with tokens for
    ``w``; leave_one_out (RLOO, arXiv 2402.14740): ``b_i = Σ_{j≠i} w_j x_j / (W - w_i)``, for
    which ``x_i - b_i = W (x_i - mean) / (W - w_i)``; best_of_others: ``b_i = max_{j≠i} x_j``.
    """
    scopes, value_V = state.peers.over(step.over), state.value_V
    if step.kind == "best_of_others":
        best_V, only_V = scopes.best_of_others(value_V), scopes.spread(scopes.size_S == 1)
        centred_V = np.where(only_V, 0.0, value_V - best_V)
    else:
        by_tokens = step.kind == "length_weighted" or step.weight == "tokens"
        weight_V = state.peers.tokens if by_tokens else None
        of_scope = scopes.summary(value_V, weight_V)
        centred_V = value_V - scopes.spread(of_scope.mean_S)
        if step.kind == "leave_one_out":
            sum_V = scopes.spread(of_scope.weight_S)
            centred_V *= sum_V / (sum_V - (1.0 if weight_V is None else weight_V))
        # Exact zeros where a scope is constant, or a value weighs nothing.
        if of_scope.constant.any():
            centred_V[scopes.spread(of_scope.constant)] = 0.0
        if weight_V is not None:
            centred_V[weight_V == 0] = 0.0
    return _settle_singletons(step, scopes, evolve(state, value_V=centred_V), value_V)


def _settle_singletons(step: Baseline, scopes: Scopes, state: _State, before_V: Floats) -> _State:
    """Give values without peers what the baseline declares; they are zeros in ``state``."""
    alone_S = scopes.size_S == 1
    if step.singleton == "zero" or not alone_S.any():
        return state
    alone_V = scopes.spread(alone_S)
    if step.singleton == "error":
        raise AlgorithmError(
            f"{state.peers.name(step.over, int(np.argmax(alone_V)))} has a single return; "
            f"a {step.kind} baseline with singleton = error needs at least two"
        )
    if step.singleton == "drop":
        return state.select(~alone_V)
    value_V = np.where(alone_V, before_V, state.value_V)
    return evolve(state, value_V=value_V, raw_V=state.raw_V | alone_V)


def _divide(step: Scale, state: _State) -> _State:
    """Divide by the size s of each scope.

    A value that a baseline left raw, and that is alone in the scope, has no peers: a mean does
    not touch it, and its standard deviation counts as 1.
    """
    scopes = state.peers.over(step.over)
    weight_V = state.peers.tokens if step.weight == "tokens" else None
    measured_V = state.peers.returns if step.of == "returns" else state.value_V
    size_V = _SIZES[step.kind](step.ddof, scopes, measured_V, weight_V)
    untouched_V = (size_V == 0) & (step.kind == "std_of_others")
    if state.raw_V.any():
        alone_V = state.raw_V & scopes.spread(scopes.size_S == 1)
        untouched_V |= alone_V & (step.kind == "mean")
        size_V[alone_V & (size_V == 0)] = 1.0
    combine = {"outside": np.add, "inside": np.hypot, "clamp": np.maximum}[step.eps_place]
    eps = step.eps if step.eps_place == "outside" else np.sqrt(step.eps)
    scaled_V = state.value_V / combine(size_V, eps)
    scaled_V[size_V <= step.tolerance] = 0.0
    scaled_V[np.isinf(size_V)] = np.nan  # the size has overflowed: refused by the caller
    if untouched_V.any():
        scaled_V[untouched_V] = state.value_V[untouched_V]
    if weight_V is not None:
        scaled_V[weight_V == 0] = 0.0
    return evolve(state, value_V=scaled_V)


@frozen(eq=False)
class _Deviations:
    """``d = x - mean``, or ``x`` itself, as parts of the widest of the scope, so that squares
    neither underflow nor overflow; zero where the weight is."""

    weight_S: Floats
    constant_S: Bools
    widest_S: Floats
    relative_V: Floats
    squares_S: Floats  # Σ w d², relative too


def _deviations(
    scopes: Scopes, x_V: Floats, weight_V: Floats | None, centred: bool = True
) -> _Deviations:
    of_scope = scopes.summary(x_V, weight_V)
    centre_S = of_scope.mean_S if centred else np.zeros_like(of_scope.mean_S)
    relative_V = x_V - scopes.spread(centre_S)
    widest_S = np.maximum(of_scope.high_S - centre_S, centre_S - of_scope.low_S)
    relative_V /= scopes.spread(widest_S)
    squares_V = relative_V**2
    if weight_V is not None:
        relative_V[weight_V == 0] = squares_V[weight_V == 0] = 0.0
        squares_V *= weight_V
    return _Deviations(
        of_scope.weight_S, of_scope.constant, widest_S, relative_V, scopes.total(squares_V)
    )


def _std(ddof: int, scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    """Return ``sqrt(Σ w d² / (W - ddof))``, exactly 0 where the scope is constant."""
    of = _deviations(scopes, x_V, weight_V)
    std_S = of.widest_S * np.sqrt(of.squares_S / (of.weight_S - ddof))
    return scopes.spread(np.where(of.constant_S, 0.0, std_S))


def _std_of_others(ddof: int, scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    """Return ``_std`` without the value itself: ``Σ_{j≠i} w_j (x_j - mean of others)²`` is
    ``Σ w d² - w_i d_i² W / (W - w_i)``. Exactly 0 where the others that weigh anything are all
    equal, or none."""
    of = _deviations(scopes, x_V, weight_V)
    own_V = np.ones_like(x_V) if weight_V is None else weight_V
    sum_V = scopes.spread(of.weight_S)
    own_squares_V = own_V * of.relative_V**2 * sum_V / (sum_V - own_V)
    left_V = np.maximum(scopes.spread(of.squares_S) - own_squares_V, 0.0)
    std_V = scopes.spread(of.widest_S) * np.sqrt(left_V / (sum_V - own_V - ddof))
    weighs = own_V > 0
    best_V = scopes.best_of_others(np.where(weighs, x_V, -np.inf))
    worst_V = -scopes.best_of_others(np.where(weighs, -x_V, -np.inf))
    return np.where(best_V <= worst_V, 0.0, std_V)


def _rms(ddof: int, scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    """Return ``sqrt(Σ w x² / (W - ddof))``; 1 where there are too few values for it."""
    of = _deviations(scopes, x_V, weight_V, centred=False)
    rms_S = of.widest_S * np.sqrt(of.squares_S / (of.weight_S - ddof))
    rms_S = np.where(of.widest_S <= 0, 0.0, rms_S)
    return scopes.spread(np.where(of.weight_S > ddof, rms_S, 1.0))


def _mean(_: int, scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    of_scope = scopes.summary(x_V, weight_V)
    return scopes.spread(np.where(of_scope.weight_S > 0, of_scope.mean_S, 0.0))


def _nonzero_share(_: int, scopes: Scopes, x_V: Floats, weight_V: Floats | None) -> Floats:
    return _mean(0, scopes, (x_V != 0).astype(np.float64), weight_V)


_SIZES = {
    "std": _std,
    "std_of_others": _std_of_others,
    "rms": _rms,
    "mean": _mean,
    "nonzero_share": _nonzero_share,
}
