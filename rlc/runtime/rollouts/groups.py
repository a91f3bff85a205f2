"""Many tasks played side by side, each by a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from attrs import evolve

from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, RunError
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.roles import play_task
from rlc.runtime.rollouts.tasks import Task


async def play_tasks(
    player: Player, tasks: Iterable[Task], on_group: Callable[[list[Rollout]], None]
) -> list[Rollout]:
    """Play tasks concurrently; return all their members in order."""
    return [member for group in await play_groups(player, tasks, on_group) for member in group]


async def play_groups(
    player: Player, tasks: Iterable[Task], on_group: Callable[[list[Rollout]], None]
) -> list[list[Rollout]]:
    """Play tasks concurrently; return the members of each in order. ``on_group`` is called with
    them as soon as a task is played."""

    async def play(task: Task) -> list[Rollout]:
        members = await play_task(player, task)
        on_group(members)
        return members

    return await all_of(map(play, tasks))


async def replace_equals(
    play: Callable[[Sequence[Task]], Awaitable[list[list[Rollout]]]],
    spare: Callable[[str, int], Task],
    spares: Iterator[int],
    tasks: Sequence[Task],
    groups: Sequence[list[Rollout]],
) -> list[Rollout]:
    """Replace groups whose members all have the same reward; return the rollouts of all groups.

    Such a group is marked as replaced and another task of its environment is played, as long as
    there are numbers of ``spares``; then it stays. A group that failed as a whole is not replaced:
    the recipe says what happens to failures.
    """
    rollouts: list[Rollout] = []
    while tasks:
        fresh = list[Task]()
        for task, group in zip(tasks, groups, strict=True):
            if is_constant(group) and (number := next(spares, None)) is not None:
                fresh.append(spare(task.env.plan.name, number))
                group = [evolve(member, replaced=True) for member in group]
            rollouts.extend(group)
        tasks, groups = fresh, await play(fresh) if fresh else []
    return rollouts


def is_constant(group: Iterable[Rollout]) -> bool:
    """Whether the members of a group have the same reward, in each role that was played."""
    rewards = {(rollout.role, rollout.reward) for rollout in group if rollout.credit}
    return bool(rewards) and len(rewards) == len({role for role, _ in rewards})


def replaced_groups(rollouts: Iterable[Rollout], envs: Iterable[str]) -> dict[str, float]:
    """Return how many groups of each environment were replaced."""
    groups = {rollout.group for rollout in rollouts if rollout.replaced}
    return {f"resampled/{env}": float(sum(name == env for name, _ in groups)) for env in envs}


def require_any(rollouts: Sequence[Rollout]) -> None:
    """Raise RunError, with the first cause, if no rollout succeeded."""
    if not any(rollout.credit and rollout.error is None for rollout in rollouts):
        causes = (str(rollout.failure) for rollout in rollouts if rollout.failure)
        cause = next(causes, "no episode had a reward")
        raise RunError(f"every rollout failed; the first cause: {cause}")
