"""The credit of a rollout: what its rewards are reduced to, and shaped into.

A reward that compares a rollout with its group is shaped once all members are over, those that
failed left out; until then its credit is the reward before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from attrs import evolve

from rlc.algo import (
    AlgorithmError,
    Parts,
    Program,
    compares,
    reduce_rewards,
    require_inputs,
    shaped_reward,
    shaped_rewards,
)
from rlc.chat import EnvError, Observation
from rlc.plan import RewardPlan
from rlc.runtime.records import Rollout, Turn


def credited(rollout: Rollout, plan: RewardPlan) -> Rollout:
    """Return a rollout with its credit, still to be shaped by :func:`shaped_in_group` if that
    compares it with others. Raise ShapedRewardError if it cannot be shaped."""
    turns, by_itself = rollout.turns, rollout.ended == "done"
    raw, components = raw_reward(plan, turns, by_itself), credited_components(plan, turns)
    if plan.shaped is None or not compares(plan.shaped):
        credit = episode_credit(plan, turns, by_itself)
    elif credit := episode_credit(_bare(plan), turns, by_itself):
        with _shaping():  # what is missing is missed now, while the episode can be played again
            require_inputs(plan.shaped, _inputs(turns, by_itself, sum(credit)))
    return evolve(rollout, credit=credit, raw=raw, components=components)


def shaped_in_group(plan: RewardPlan, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts of a group, with their rewards shaped if that compares them with one
    another. Raise ShapedRewardError if they cannot be shaped."""
    group, program = list(rollouts), plan.shaped
    if program is None or not compares(program):
        return group
    members = [at for at, rollout in enumerate(group) if is_compared(rollout)]
    known = [
        _inputs(one.turns, one.ended == "done", one.reward) for one in (group[at] for at in members)
    ]
    with _shaping():
        rewards = shaped_rewards(program, known, [group[at].role for at in members])
    for at, reward in zip(members, rewards, strict=True):
        before = [None] * (len(group[at].turns) - 1)
        credit = reduce_rewards([*before, reward], "sum", low=plan.low, high=plan.high)
        group[at] = evolve(group[at], credit=credit or ())
    return group


def is_compared(rollout: Rollout) -> bool:
    """Return whether a rollout is one of its group: it has not failed, and was rewarded."""
    return rollout.error is None and bool(rollout.turns and rollout.credit)


def raw_reward(plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool) -> float | None:
    """Return the reward of an episode before it was shaped; None if it is not shaped."""
    if plan.shaped is None:
        return None
    return sum(episode_credit(_bare(plan), turns, ended_by_itself))


def _bare(plan: RewardPlan) -> RewardPlan:
    return evolve(plan, shaped=None, low=None, high=None)


def episode_credit(
    plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool
) -> tuple[float, ...]:
    """Return the credit of each turn; empty without a reward. Raise ShapedRewardError."""
    program = plan.shaped
    credit = reduce_rewards(
        [turn.reward for turn in turns],
        plan.reduce,
        nonterminal=plan.nonterminal,
        low=plan.low,
        high=plan.high,
        ended=ended_by_itself,
        shaped=None if program is None else partial(_shaped, program, turns, ended_by_itself),
    )
    return credit or ()


def credited_components(plan: RewardPlan, turns: Sequence[Turn]) -> Parts:
    """Return the components of a credit that is their weighted sum, reduced as it is."""
    if (plan.nonterminal, plan.low, plan.high, plan.shaped) != (None, None, None, None):
        return {}
    parts = (part for turn in turns for part in turn.components.items())
    weights = {name: weight for name, (weight, _) in parts if weight}
    values = {
        name: [
            None if turn.reward is None else turn.components.get(name, (0.0, 0.0))[1]
            for turn in turns
        ]
        for name in weights
    }
    return {
        name: (weight, reduce_rewards(values[name], plan.reduce) or ())
        for name, weight in weights.items()
    }


def unplayed_credit(plan: RewardPlan, end: Observation) -> tuple[float, ...]:
    """Return the credit of an episode that ended before its first turn, which nothing shapes."""
    return reduce_rewards([end.reward], "sum", low=plan.low, high=plan.high) or ()


def _shaped(program: Program, turns: Sequence[Turn], ended_by_itself: bool, total: float) -> float:
    with _shaping():
        return shaped_reward(program, _inputs(turns, ended_by_itself, total))


def _inputs(turns: Sequence[Turn], ended_by_itself: bool, total: float) -> dict[str, float]:
    """Return what a shaped reward may read of an episode. It is truncated if it did not end by
    itself, or its last reply was cut off at max_tokens."""
    cut_off = not ended_by_itself or turns[-1].stop_reason == "length"
    known = {
        "total": total,
        "tokens": float(sum(len(turn.tokens) for turn in turns)),
        "turns": float(len(turns)),
        "truncated": float(cut_off),
    }
    return {**turns[-1].metrics, **known}


@contextmanager
def _shaping() -> Iterator[None]:
    try:
        yield
    except AlgorithmError as error:
        raise ShapedRewardError(str(error)) from error


class ShapedRewardError(EnvError):
    """A reward that cannot be shaped: a component is missing, or the result infinite."""

    cause = "reward"
