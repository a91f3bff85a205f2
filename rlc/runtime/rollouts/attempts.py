"""One attempt at an episode, its calls of the player and the environment, and its credit."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define, evolve, field

from rlc.algo import AlgorithmError, Program, reduce_rewards, shaped_reward
from rlc.chat import Action, EnvError, Observation, calls_of
from rlc.data import TaskFacts
from rlc.envs import Deadline
from rlc.plan import RewardPlan
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.rollouts.tokens import TOKEN, first_of
from rlc.service import pending_call

if TYPE_CHECKING:
    from tinker import types

    from rlc.algo import Parts


def credited(rollout: Rollout, plan: RewardPlan) -> Rollout:
    """Return a rollout with the credit of its turns. Raise ShapedRewardError if it cannot be
    shaped."""
    turns, by_itself = rollout.turns, rollout.ended == "done"
    credit, components = episode_credit(plan, turns, by_itself), credited_components(plan, turns)
    raw = raw_reward(plan, turns, by_itself)
    return evolve(rollout, credit=credit, raw=raw, components=components)


def raw_reward(plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool) -> float | None:
    """Return the reward of an episode before it was shaped; None if it is not shaped."""
    if plan.shaped is None:
        return None
    bare = evolve(plan, shaped=None, low=None, high=None)
    return sum(episode_credit(bare, turns, ended_by_itself))


def episode_credit(
    plan: RewardPlan, turns: Sequence[Turn], ended_by_itself: bool
) -> tuple[float, ...]:
    """Return the credit of each turn; empty for an episode without a reward. Raise
    ShapedRewardError if it cannot be shaped."""
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
    """Return the weighted components of the credit, each reduced as the reward is; none if the
    credit is one number, or limited or shaped as a whole."""
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
    """Return the shaped reward of an episode. It is truncated if it did not end by itself, or its
    last reply was cut off at max_tokens."""
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
    """A reward that cannot be shaped: a component is missing, or the result infinite."""

    cause = "reward"


T = TypeVar("T")


@define(eq=False)
class Attempt:
    """One attempt at one member's episode, with its turns however it ends."""

    task: Task
    member: int
    seed: int
    seconds: dict[str, float]
    turns: list[Turn] = field(factory=list)
    digest: str = ""  # of the first observation, once the episode is over
    about: TaskFacts | None = None  # the task, once it is open
    begun: bool = False  # from then on it closes its episode itself
    unplayed: Observation | None = None  # the end of an episode without a turn

    def add_span(self, kind: str, spent: Deadline) -> None:
        """Add a span; its wait for a free place, if any, counts as ``waiting``."""
        self.seconds[kind] += spent.worked
        if spent.waited:
            self.seconds["waiting"] = self.seconds.get("waiting", 0.0) + spent.waited


def sampled_turn(sampled: types.SampledSequence, action: Action, topk: int, **more: Any) -> Turn:
    """Return a sampled reply, and the action that it was read as, as a turn; ``topk`` tokens are
    kept in the place of each. Raise RunError if it has no logprobs."""
    if sampled.logprobs is None:
        raise RunError("the service returned no logprobs for a sampled sequence")
    return Turn(
        tokens=array(TOKEN, sampled.tokens),
        logprobs=array("d", sampled.logprobs),
        action=action.text,
        stop_reason=sampled.stop_reason,
        calls=tuple(calls_of(action.message or {})),
        sequence_id=sampled.sequence_id,
        topk=first_of(sampled.topk_logprobs_np, topk),
        **more,
    )


async def call_environment(call: Awaitable[T], holds: bool = True) -> T:
    """Return the result of code that is not rlc's own.

    If it exits the program, or raises what looks like our own cancellation, only this call fails.
    With ``holds`` the service waits for the call before it answers the next batch of requests; not
    so in a game, where the call may itself wait for replies to other members.
    """
    try:
        with pending_call() if holds else nullcontext():
            return await call
    except SystemExit as error:
        raise EnvError("the environment raised SystemExit") from error
    except asyncio.CancelledError as error:
        ours = asyncio.current_task()
        if ours is None or ours.cancelling():
            raise
        raise EnvError("the environment raised CancelledError") from error
