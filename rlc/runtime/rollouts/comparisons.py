"""Rewards that are given once all members of a group are over: those that compare them, and those
of reward models, which read the tokens of whole episodes.

Members that failed for good are not judged. If a judgement fails it is tried again as the plan
allows, then the members fail with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from random import Random

from attrs import evolve

from rlc.chat import EnvError, Observation, Verdict
from rlc.envs import ComparisonVerdict, JudgedReward, rewarded
from rlc.plan import RewardModelPlan
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.credit import credited
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.rollouts.tokens import merged_sequences
from rlc.seeds import derive_seed
from rlc.service import ServiceLostError


async def compare(player: Player, task: Task, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts of a group with what its comparisons say of them, and their credit."""
    there = [at for at, rollout in enumerate(rollouts) if rollout.error is None and rollout.turns]
    made, plan = list(rollouts), task.env.plan
    try:
        for judging in task.env.comparing if there else ():
            # Alone is judged what came to an end of its own.
            alone = judging.plan.by == "score"
            by_it = [at for at in there if not alone or made[at].ended in ("done", "truncated")]
            judged = await _judged(player, task, judging, [made[at] for at in by_it])
            for at, rollout in zip(by_it, judged, strict=True):
                made[at] = rollout
        for at in there:
            made[at] = credited(made[at], plan.reward)
    except ServiceLostError:
        raise
    except Exception as error:
        for at in there:
            made[at] = player.failed(made[at], error)
    return made


async def _judged(
    player: Player, task: Task, judging: JudgedReward, rollouts: Sequence[Rollout]
) -> list[Rollout]:
    """What one judging makes of a group, tried as often as the plan allows."""
    episodes = [[(turn.observation, turn.action) for turn in r.turns] for r in rollouts]
    found: list[list[ComparisonVerdict]] = [[] for _ in rollouts]
    for attempt in range(player.on_error.retries + 1):
        order = Random(derive_seed(task.seed, "comparison", attempt))
        try:
            learnt = [await _learnt(task, judging, model, rollouts) for model in judging.rewards]
            if judging.plan.by != "score":
                found = await judging.compare(task.key, episodes, order)
            found = [[*said, *of] for said, *of in zip(found, *learnt, strict=True)]
            break
        except ServiceLostError:
            raise
        except EnvError:
            if attempt == player.on_error.retries or len(rollouts) < 2:
                raise
    return [
        evolve(rollout, turns=(*rollout.turns[:-1], _rewarded(rollout.turns[-1], found[at])))
        for at, rollout in enumerate(rollouts)
    ]


async def _learnt(
    task: Task, judging: JudgedReward, model: RewardModelPlan, rollouts: Sequence[Rollout]
) -> list[ComparisonVerdict]:
    """What a reward model makes of a group: the implicit reward of each episode, or the share of
    the others that it is above."""
    read = await all_of(_implicit_reward(task, judging, model, one) for one in rollouts)
    rewards = [reward for reward, _ in read]
    if judging.plan.by != "score":
        rewards = above(rewards)
    return [
        ComparisonVerdict(Verdict(model.name, reward, said), {model.name: (model.weight, reward)})
        for reward, (_, said) in zip(rewards, read, strict=True)
    ]


async def _implicit_reward(
    task: Task, judging: JudgedReward, model: RewardModelPlan, rollout: Rollout
) -> tuple[float, str]:
    """β (log π − log π_ref) of the last reply, or of all, and how it came about."""
    assert model.reference is not None
    assert model.beta is not None
    last = len(rollout.turns) - 1
    judged = range(last + 1) if judging.plan.whole else (last,)
    said = [
        (sequence.tokens, sequence.chunks, places)
        for sequence in merged_sequences(rollout.turns)
        if (places := [at for at, turn in enumerate(sequence.turns) if turn in judged])
    ]
    count = sum(len(places) for *_, places in said)
    read = task.env.responders.logprob
    now = await all_of(read(model.model, *one) for one in said)
    before = await all_of(read(model.reference, *one) for one in said)
    reward = model.beta * (fsum(now) - fsum(before)) / (count if model.mean else 1)
    return reward, f"log p {fsum(now):.2f}, before {fsum(before):.2f}, of {count} tokens"


def above(rewards: Sequence[float]) -> list[float]:
    """For each of two or more rewards, the share of the others that it is above; equals count
    half."""
    others = len(rewards) - 1
    return [
        sum((one > other) + 0.5 * (one == other) for other in rewards) / others - 0.5 / others
        for one in rewards
    ]


def _rewarded(turn: Turn, judged: Sequence[ComparisonVerdict]) -> Turn:
    before = Observation("", turn.reward, True, turn.metrics, components=turn.components)
    after = rewarded(before, judged)
    return evolve(
        turn,
        reward=after.reward,
        metrics=after.metrics,
        components=after.components,
        verdicts=(*turn.verdicts, *after.verdicts),
    )
