"""Advantages: how much better than its peers a rollout, or a turn, was.

Everything is float64. Whether a scope is constant is decided by ``max == min`` before anything is
subtracted or divided, and a constant scope then gives exact zeros: the mean of three times 0.1
is one bit off 0.1, and that bit divided by its own spread is an advantage of -1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
from attrs import evolve, frozen

from rlc.algo.errors import AlgorithmError
from rlc.algo.ragged import Bools, Floats, Ints, join, require_turns, split
from rlc.algo.returns import flat_returns
from rlc.algo.scheme import AdvantageScheme, Baseline, Clip, Scale, Scope
from rlc.algo.scopes import Scopes


@frozen(eq=False)
class Episodes:
    """The rewards of a batch of R rollouts with N turns altogether.

    Columns over N hold the turns of rollout 0, then of rollout 1, and so on;
    :meth:`from_rollouts` takes them rollout by rollout.
    """

    rewards_N: Floats
    tokens_N: Ints  # action tokens of each turn
    turns_R: Ints
    group_R: Ints  # label of the group a rollout belongs to
    env_R: Ints  # label of its environment

    def __attrs_post_init__(self) -> None:
        if not len(self.turns_R) == len(self.group_R) == len(self.env_R):
            raise AlgorithmError(
                f"{len(self.turns_R)} rollouts have {len(self.group_R)} group labels "
                f"and {len(self.env_R)} environment labels"
            )
        if not len(self.rewards_N) == len(self.tokens_N) == int(self.turns_R.sum()):
            raise AlgorithmError(
                f"{int(self.turns_R.sum())} turns have {len(self.rewards_N)} rewards "
                f"and {len(self.tokens_N)} token counts"
            )
        require_turns(self.turns_R)
        if (self.tokens_N < 0).any():
            raise AlgorithmError("a turn cannot have a negative number of action tokens")

    @classmethod
    def from_rollouts(
        cls,
        rewards_RT: Sequence[npt.ArrayLike],
        tokens_RT: Sequence[npt.ArrayLike],
        group_R: npt.ArrayLike,
        env_R: npt.ArrayLike,
    ) -> Episodes:
        """Rewards and action-token counts of each rollout's turns, and its two labels."""
        rewards_N, turns_R = join(rewards_RT, np.float64)
        tokens_N, token_turns_R = join(tokens_RT, np.int64)
        if not np.array_equal(turns_R, token_turns_R):
            raise AlgorithmError("each turn needs one reward and one token count")
        labels = (np.asarray(label_R, dtype=np.int64) for label_R in (group_R, env_R))
        return cls(rewards_N, tokens_N, turns_R, *labels)


@frozen(eq=False)
class Advantages:
    """The advantage of every turn, the returns behind them, and which rollouts remain."""

    advantages_N: Floats  # zeros for rollouts that were dropped
    returns_V: Floats  # V = R for an episode scheme, N for a turn scheme
    kept_R: Bools
    turns_R: Ints

    def by_rollout(self) -> list[Floats]:
        """The advantages, one array a rollout, one value a turn."""
        return split(self.advantages_N, self.turns_R)

    def returns_by_rollout(self) -> list[Floats]:
        """The returns, one array a rollout: one value, or one a turn."""
        by_turn = len(self.returns_V) == len(self.advantages_N)
        return split(self.returns_V, self.turns_R if by_turn else np.ones_like(self.turns_R))


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
    with np.errstate(all="ignore"):  # what overflows is refused after each step
        start = _start(scheme, episodes)
        _require_representable(start)
        state = _drop_constant(start) if scheme.constant == "drop" else start
        for step in scheme.steps:
            state = _apply(step, state)
            _require_representable(state)
    all_V, kept_V = np.zeros(len(start.value_V)), np.zeros(len(start.value_V), dtype=bool)
    all_V[state.item_V], kept_V[state.item_V] = state.value_V, True
    turns_R = episodes.turns_R
    if scheme.returns.unit == "episode":
        return Advantages(np.repeat(all_V, turns_R), start.value_V, kept_V, turns_R)
    return Advantages(all_V, start.value_V, kept_V[np.cumsum(turns_R) - 1], turns_R)


@frozen(eq=False)
class _Peers:
    """The values that are compared: what stays the same from step to step."""

    return_V: Floats
    tokens_V: Floats
    group_V: Ints
    env_V: Ints

    @cached_property
    def group(self) -> Scopes:
        return Scopes(self.group_V)

    @cached_property
    def env(self) -> Scopes:
        return Scopes(self.env_V)

    @cached_property
    def batch(self) -> Scopes:
        return Scopes(np.zeros_like(self.group_V))

    def over(self, scope: Scope) -> Scopes:
        if scope == "batch":
            return self.batch
        return self.group if scope == "group" else self.env

    def weights(self, weight: str) -> Floats:
        return self.tokens_V if weight == "tokens" else np.ones(len(self.return_V))

    def select(self, keep_V: Bools) -> _Peers:
        return _Peers(
            self.return_V[keep_V], self.tokens_V[keep_V], self.group_V[keep_V], self.env_V[keep_V]
        )


@frozen(eq=False)
class _State:
    """The values between two steps."""

    peers: _Peers
    value_V: Floats
    raw_V: Bools  # single values that a baseline left as they were
    item_V: Ints  # where each value belongs in the result

    def select(self, keep_V: Bools) -> _State:
        peers = self.peers.select(keep_V)
        return _State(peers, self.value_V[keep_V], self.raw_V[keep_V], self.item_V[keep_V])


def _start(scheme: AdvantageScheme, episodes: Episodes) -> _State:
    turns_R, tokens_N = episodes.turns_R, episodes.tokens_N
    return_V = flat_returns(scheme.returns, episodes.rewards_N, turns_R)
    if scheme.returns.unit == "turn":
        tokens_V = tokens_N
        group_V, env_V = np.repeat(episodes.group_R, turns_R), np.repeat(episodes.env_R, turns_R)
    else:
        counted = np.concatenate(([0], np.cumsum(tokens_N)))
        ends_R = np.cumsum(turns_R)
        tokens_V = counted[ends_R] - counted[ends_R - turns_R]
        group_V, env_V = episodes.group_R, episodes.env_R
    peers = _Peers(return_V, tokens_V.astype(np.float64), group_V, env_V)
    count = len(return_V)
    return _State(peers, return_V, np.zeros(count, dtype=bool), np.arange(count))


def _require_representable(state: _State) -> None:
    if not np.isfinite(state.value_V).all():
        raise AlgorithmError("the rewards are so large that their returns or advantages overflow")


def _drop_constant(state: _State) -> _State:
    groups = state.peers.over("group")
    constant_S = groups.constant(state.value_V, state.peers.weights("value"))
    drop_S = constant_S & (groups.size_S > 1)
    return state.select(~drop_S[groups.scope_V]) if drop_S.any() else state


def _apply(step: Baseline | Scale | Clip, state: _State) -> _State:
    if isinstance(step, Baseline):
        return _subtract(step, state)
    if isinstance(step, Scale):
        return _divide(step, state)
    return evolve(state, value_V=np.clip(state.value_V, step.low, step.high))


def _subtract(step: Baseline, state: _State) -> _State:
    """Subtract the baseline b of each scope; ``w`` is the weight of a value, ``W`` their sum.

    mean: ``b = Σ w x / W``; length_weighted (OPO, arXiv 2505.23585): the same with tokens for
    ``w``; leave_one_out (RLOO, arXiv 2402.14740): ``b_i = Σ_{j≠i} w_j x_j / (W - w_i)``, for
    which ``x_i - b_i = W (x_i - mean) / (W - w_i)``.
    """
    scopes = state.peers.over(step.over)
    weight_V = state.peers.weights("tokens" if step.kind == "length_weighted" else step.weight)
    scope_V, value_V = scopes.scope_V, state.value_V
    sum_V = scopes.total(weight_V)[scope_V]
    centred_V = value_V - (scopes.total(weight_V * value_V)[scope_V] / sum_V)
    if step.kind == "leave_one_out":
        centred_V *= sum_V / (sum_V - weight_V)
    centred_V[scopes.constant(value_V, weight_V)[scope_V] | (weight_V == 0)] = 0.0
    return _settle_singletons(step, scopes, evolve(state, value_V=centred_V), value_V)


def _settle_singletons(step: Baseline, scopes: Scopes, state: _State, before_V: Floats) -> _State:
    """Give values without peers what the baseline declares; they come in as zeros."""
    alone_S = scopes.size_S == 1
    if step.singleton == "zero" or not alone_S.any():
        return state
    if step.singleton == "error":
        place = f"{step.over} {int(scopes.label_S[np.argmax(alone_S)])}"
        raise AlgorithmError(
            f"{'the batch' if step.over == 'batch' else place} has a single return; "
            f"a {step.kind} baseline with singleton = error needs at least two"
        )
    alone_V = alone_S[scopes.scope_V]
    if step.singleton == "drop":
        return state.select(~alone_V)
    value_V = np.where(alone_V, before_V, state.value_V)
    return evolve(state, value_V=value_V, raw_V=state.raw_V | alone_V)


def _divide(step: Scale, state: _State) -> _State:
    """Divide by each scope's spread, or by the mean of its returns (MaxRL, arXiv 2602.02710).

    A value that a baseline left raw and that is alone in the scope has neither peers nor spread:
    its spread counts as 1, and a mean does not touch it.
    """
    scopes = state.peers.over(step.over)
    weight_V = state.peers.weights(step.weight)
    if step.kind == "std":
        size_S = _std(step, scopes, state.value_V, weight_V)
    else:
        sum_S = scopes.total(weight_V)
        mean_S = scopes.total(weight_V * state.peers.return_V) / sum_S
        size_S = np.where(sum_S > 0, mean_S, 0.0)
    raw_V = state.raw_V & (scopes.size_S == 1)[scopes.scope_V]
    size_V = np.where(raw_V, 1.0, size_S[scopes.scope_V])
    divisor_V = size_V + step.eps
    if step.eps_place == "inside":
        divisor_V = np.hypot(size_V, np.sqrt(step.eps))
    scaled_V = np.where((size_V <= 0) | (weight_V == 0), 0.0, state.value_V / divisor_V)
    scaled_V[np.isinf(size_V)] = np.nan
    if step.kind == "mean":
        scaled_V = np.where(raw_V, state.value_V, scaled_V)
    return evolve(state, value_V=scaled_V)


def _std(step: Scale, scopes: Scopes, value_V: Floats, weight_V: Floats) -> Floats:
    """``sqrt(Σ w (x - mean)² / (W - ddof))`` of each scope, 0 exactly where it is constant.

    Deviations are taken relative to the largest, so that their squares neither underflow nor
    overflow.
    """
    if step.ddof not in (0, 1):
        raise AlgorithmError(f"ddof is {step.ddof}; it must be 0 or 1")
    sum_S = scopes.total(weight_V)
    mean_S = scopes.total(weight_V * value_V) / sum_S
    deviation_V = np.where(weight_V > 0, value_V - mean_S[scopes.scope_V], 0.0)
    widest_S = scopes.largest(np.abs(deviation_V))
    relative_V = deviation_V / widest_S[scopes.scope_V]
    variance_S = scopes.total(weight_V * relative_V**2) / (sum_S - step.ddof)
    constant_S = scopes.constant(value_V, weight_V)
    return np.where(constant_S, 0.0, widest_S * np.sqrt(variance_S))
