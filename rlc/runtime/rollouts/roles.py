"""Tasks played in roles: a rollout for each solver and for the judge of every member.

The solvers of all members have one prompt, so their replies come from one request. A judge sees
the solutions of its own member; if a solver failed for good, the judge fails with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import evolve, frozen

from rlc.chat import Observation, PromptBuilder
from rlc.envs import JUDGE, SOLVER, AsyncEpisode, PlayableEnv, SolverJudge, TaskKey
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout
from rlc.runtime.rollouts.comparisons import compare
from rlc.runtime.rollouts.games import play_game
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.seeds import derive_seed


async def play_task(player: Player, task: Task) -> list[Rollout]:
    """Return all rollouts of one task, member by member; see :meth:`Player.play`.

    In roles, a member's solvers come first, then its judge; in a game, its seats.
    """
    roles = task.env.roles
    if task.env.plan.play is not None:
        return await play_game(player, task)
    if roles is None:
        played = await player.play(task)
        return await compare(player, task, played) if task.env.comparing else played
    count = roles.solvers
    solving = _in_role(task, roles.solver, task.env.new_history, task.size * count, task.seed)
    played = await player.play(solving)
    solved_G = [played[m * count : (m + 1) * count] for m in range(task.size)]
    judged_G = await all_of(
        _judge(player, task, roles, member, solved) for member, solved in enumerate(solved_G)
    )
    return [
        evolve(rollout, member=member, role=role)
        for member, (solved, judged) in enumerate(zip(solved_G, judged_G, strict=True))
        for role, rollouts in ((SOLVER, solved), (JUDGE, [judged]))
        for rollout in rollouts
    ]


async def _judge(
    player: Player, task: Task, roles: SolverJudge, member: int, solved: Sequence[Rollout]
) -> Rollout:
    failed = next((rollout for rollout in solved if rollout.error or not rollout.turns), None)
    if failed is not None:
        cause = f"a solver failed: {failed.error or 'it had no turn'}"
        return evolve(failed, turns=(), ended="failed", credit=(), error=cause)
    turns = [rollout.turns[0] for rollout in solved]
    outcomes = [(t.action, Observation("", t.reward, True, t.metrics)) for t in turns]
    judging = _in_role(
        task,
        lambda problem: roles.judge(problem, outcomes),
        roles.judge_history,
        1,
        derive_seed(task.seed, JUDGE, member),
    )
    (rollout,) = await player.play(judging)
    return rollout


def _in_role(
    task: Task,
    role: Callable[[AsyncEpisode], AsyncEpisode],
    history: Callable[[], PromptBuilder],
    size: int,
    seed: int,
) -> Task:
    """Return what one role plays of a task, as a task of its own."""
    env = PlayableEnv(task.env.plan, _RoleSource(task, role), history)
    return evolve(task, env=env, size=size, seed=seed)


@frozen
class _RoleSource:
    """The episodes of a task as one role sees them, in the task's own state."""

    task: Task
    role: Callable[[AsyncEpisode], AsyncEpisode]

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        key = evolve(self.task.key, size=task.size)
        return [self.role(problem) for problem in await self.task.env.source.open(key, members)]

    async def close(self) -> None:
        """Do nothing: the source is closed with the environment that it belongs to."""
