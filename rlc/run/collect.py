"""Which tasks a stage plays next, and playing them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from attrs import define, field

from rlc.envs.build import PlayableEnv
from rlc.envs.seeds import derive_seed
from rlc.run.mixture import draw
from rlc.run.records import Rollout, RunError
from rlc.run.roles import play_task
from rlc.run.rollout import Player, Task
from rlc.run.tasks import all_of


@define
class TaskStream:
    """The tasks of a mixture in order. ``cursor`` holds how many of each environment are drawn.

    A task is picked by its number under the stream's ``names``, so a resumed run goes on with the
    next, and an evaluation that starts over gets the same ones.
    """

    envs: Mapping[str, PlayableEnv]
    cursor: dict[str, int]
    seed: int
    names: tuple[str, ...]
    step: int = 0  # the last step whose tasks are drawn
    size: int | None = None  # members of a group; None: as each environment says
    _drawn: dict[int, list[Task]] = field(factory=dict, init=False)
    _cursors: dict[int, dict[str, int]] = field(factory=dict, init=False)

    def take(self, count: int) -> list[Task]:
        """The next ``count`` tasks."""
        weights = {name: env.plan.weight for name, env in self.envs.items()}
        return [
            Task(
                env=self.envs[env],
                number=number,
                size=self.size or self.envs[env].plan.rollouts.group,
                seed=derive_seed(self.seed, *self.names, env, number),
                order=derive_seed(self.seed, *self.names, env, "order"),
            )
            for env, number in draw(weights, self.cursor, count)
        ]

    def of_step(self, step: int, count: int) -> list[Task]:
        """The ``count`` tasks of a step, the same whenever it is asked. Steps are drawn in
        order, even if a later one is asked for first."""
        while self.step < step:
            tasks = self.take(count)
            self.end_step()
            self._drawn[self.step] = tasks
        return self._drawn[step]

    def end_step(self) -> None:
        """What is taken from now on belongs to the next step."""
        self.step += 1
        self._cursors[self.step] = dict(self.cursor)

    def cursor_after(self, step: int) -> dict[str, int]:
        """What was drawn up to the end of a step, which is forgotten with this."""
        self._drawn.pop(step, None)
        return self._cursors.pop(step)


async def play_tasks(
    player: Player, tasks: Iterable[Task], on_group: Callable[[], None]
) -> list[Rollout]:
    """Play tasks side by side, the members of each in order."""

    async def play(task: Task) -> list[Rollout]:
        members = await play_task(player, task)
        on_group()
        return members

    return [member for group in await all_of(map(play, tasks)) for member in group]


def require_any(rollouts: Iterable[Rollout]) -> None:
    """Raises RunError, with the first cause, if not one rollout succeeded."""
    failed = []
    for rollout in rollouts:
        if rollout.credit and rollout.error is None:
            return
        failed.append(rollout.error)
    cause = next((error for error in failed if error), "no episode had a reward")
    raise RunError(f"every rollout failed; the first cause: {cause}")
