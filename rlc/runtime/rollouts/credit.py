"""What an episode is credited with, from the rewards of its turns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve

from rlc.algo import AlgorithmError, Program, reduce_rewards, shaped_reward
from rlc.chat import EnvError, Observation
from rlc.plan import RewardPlan
from rlc.runtime.records import Rollout, Turn

if TYPE_CHECKING:
    from rlc.algo import Parts


def credited(rollout: Rollout, plan: RewardPlan) -> Rollout:
    """Return a rollout with the credit that its turns have earned. Raise ShapedRewardError if it
    cannot be shaped."""
    turns, by_itself = rollout.turns, rollout.ended == "done"
    return evolve(
        rollout,
        credit=episode_credit(plan, turns, by_itself),
        raw=raw_reward(plan, turns, by_itself),
        components=credited_components(plan, turns),
    )


def episode_credit(
    plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool
) -> tuple[float, ...]:
    """Return the credit of each turn; empty for an episode without a reward. Raise
    ShapedRewardError if it cannot be shaped."""
    credit = reduce_rewards(
        [turn.reward for turn in turns],
        plan.reduce,
        nonterminal=plan.nonterminal,
        low=plan.low,
        high=plan.high,
        ended=ended_by_itself,
        shaped=None
        if plan.shaped is None
        else partial(_shaped, plan.shaped, turns, ended_by_itself),
    )
    return credit or ()


def credited_components(plan: RewardPlan, turns: Sequence[Turn]) -> Parts:
    """Return what the credit is the weighted sum of, each component reduced as the reward is; none
    if it is one number, or if it is limited or shaped as a whole."""
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
    """Return the credit of an episode that ended before its first turn: the game's reward, which
    nothing shapes."""
    return reduce_rewards([end.reward], "sum", low=plan.low, high=plan.high) or ()


def raw_reward(plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool) -> float | None:
    """Return the reward of an episode before it was shaped; None where none is."""
    if plan.shaped is None:
        return None
    bare = evolve(plan, shaped=None, low=None, high=None)
    return sum(episode_credit(bare, turns, ended_by_itself))


def _shaped(program: Program, turns: Sequence[Turn], ended_by_itself: bool, total: float) -> float:
    """The shaped reward, of what is known of the episode and measured of its last reply. An episode
    is truncated if it did not end by itself, or its last reply was cut off at max_tokens."""
    cut_off = not ended_by_itself or turns[-1].stop_reason == "length"
    known = {
        "total": total,
        "tokens": float(sum(len(turn.tokens) for turn in turns)),
        "turns": float(len(turns)),
        "truncated": float(cut_off),
    }
    try:
        return shaped_reward(program, {**turns[-1].metrics, **known})
    except AlgorithmError as error:
        raise ShapedRewardError(str(error)) from error


class ShapedRewardError(EnvError):
    """An episode whose reward cannot be shaped: a component is missing, or the result infinite."""

    cause = "reward"
