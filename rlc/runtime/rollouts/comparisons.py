"""Rewards that compare the members of a group, given once all of them are over.

Members that failed for good are not compared. If the comparison fails it is tried again as the plan
allows, then the members fail with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from attrs import evolve

from rlc.envs.base import EnvError, Observation
from rlc.envs.judges.judge import Judged
from rlc.envs.judges.judged import Judging, rewarded
from rlc.runtime.records import Rollout, Turn
from rlc.runtime.rollouts.credit import credited
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.seeds import derive_seed
from rlc.service.errors import ServiceLostError


async def compare(player: Player, task: Task, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts of a group with what its comparisons say of them, and their credit."""
    there = [at for at, rollout in enumerate(rollouts) if rollout.error is None and rollout.turns]
    made, plan = list(rollouts), task.env.plan
    try:
        for judging in task.env.comparing if there else ():
            judged = await _judged(player, task, judging, [made[at] for at in there])
            for at, rollout in zip(there, judged, strict=True):
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
    player: Player, task: Task, judging: Judging, rollouts: Sequence[Rollout]
) -> list[Rollout]:
    """What one judging makes of a group, tried as often as the plan allows."""
    episodes = [[(turn.observation, turn.action) for turn in r.turns] for r in rollouts]
    for attempt in range(player.on_error.retries + 1):
        order = Random(derive_seed(task.seed, "comparison", attempt))
        try:
            found = await judging.compare(task.key, episodes, order)
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


def _rewarded(turn: Turn, judged: Sequence[Judged]) -> Turn:
    before = Observation("", turn.reward, True, turn.metrics, components=turn.components)
    after = rewarded(before, judged)
    return evolve(
        turn,
        reward=after.reward,
        metrics=after.metrics,
        components=after.components,
        verdicts=(*turn.verdicts, *after.verdicts),
    )
