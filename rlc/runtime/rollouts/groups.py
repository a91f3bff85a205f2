"""Which tasks a stage plays next, and playing them side by side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlc.catalog.environments import with_role
from rlc.envs.build import PlayableEnv
from rlc.envs.seeds import derive_seed
from rlc.runtime.concurrency import all_of
from rlc.runtime.records import Rollout, RunError
from rlc.runtime.rollouts.curriculum import Curriculum, solved_share
from rlc.runtime.rollouts.player import Player, Task
from rlc.runtime.rollouts.roles import play_task
from rlc.runtime.rollouts.tasks import draw, new_cursor

SPARES = 1_000_000_000  # from here on are the numbers of tasks that replace others


@define
class TaskStream:
    """The tasks of a mixture in order. ``cursor`` holds how many of each environment are drawn,
    and under ``NAME.position`` how far a curriculum has come.

    A task is picked by its number under the stream's ``names``, so a resumed run goes on with the
    next, and an evaluation that starts over gets the same ones.
    """

    envs: Mapping[str, PlayableEnv]
    cursor: dict[str, int]
    seed: int
    names: tuple[str, ...]
    step: int = 0  # the last step whose tasks are drawn
    size: int | None = None  # members of a group; None: as each environment says
    curricula: Mapping[str, Curriculum] = field(factory=dict)
    _drawn: dict[int, list[Task]] = field(factory=dict, init=False)
    _cursors: dict[int, dict[str, int]] = field(factory=dict, init=False)
    _rows: dict[tuple[str, int], int] = field(factory=dict, init=False)

    @classmethod
    def resumed(
        cls,
        envs: Mapping[str, PlayableEnv],
        seed: int,
        names: tuple[str, ...],
        cursors: Sequence[Mapping[str, Any]],
    ) -> TaskStream:
        """The stream of a stage after the steps that left these cursors."""
        curricula = _curricula(envs, seed, names)
        for step, cursor in enumerate(cursors, start=1):
            for env, curriculum in curricula.items():
                solved = cursor[_solved(env)]
                curriculum.learn(step, {int(row): share for row, share in solved.items()})
        last = dict(cursors[-1]) if cursors else new_cursor(list(envs))
        for env in curricula:
            last.pop(_solved(env), None)
        return cls(envs, last, seed, names, len(cursors), curricula=curricula)

    def take(self, count: int) -> list[Task]:
        """The next ``count`` tasks."""
        weights = {name: env.plan.weight for name, env in self.envs.items()}
        return [self._task(env, number) for env, number in draw(weights, self.cursor, count)]

    def of_step(self, step: int, count: int, known: int = 0) -> list[Task]:
        """The ``count`` tasks of a step, the same whenever it is asked. Steps are drawn in
        order, even if a later one is asked for first. What the steps up to ``known`` have shown
        may decide which they are."""
        while self.step < step:
            for curriculum in self.curricula.values():
                curriculum.know(known)
            tasks = self.take(count)
            self.end_step()
            self._drawn[self.step] = tasks
        return self._drawn[step]

    def spare(self, env: str, number: int) -> Task:
        """A task of the environment that takes the place of another: the ``number``-th of an order
        that the cursor never comes to, so it is the same whatever else is played meanwhile."""
        return self._task(env, SPARES + number)

    def end_step(self) -> None:
        """What is taken from now on belongs to the next step."""
        self.step += 1
        self._cursors[self.step] = dict(self.cursor)

    def finish(self, step: int, rollouts: Iterable[Rollout]) -> dict[str, Any]:
        """What was drawn up to the end of a step, and what it has shown; both leave with this."""
        self._drawn.pop(step, None)
        cursor: dict[str, Any] = {**self._cursors.pop(step)}
        groups: dict[tuple[str, int], list[Rollout]] = {}
        for rollout in rollouts:
            groups.setdefault(rollout.group, []).append(rollout)
        for env, curriculum in self.curricula.items():
            found = {
                self._rows.pop(group): solved_share(members)
                for group, members in groups.items()
                if group[0] == env
            }
            shares = {row: share for row, share in found.items() if share is not None}
            curriculum.learn(step, shares)
            cursor[_solved(env)] = shares
        return cursor

    def metrics(self) -> dict[str, float]:
        """What each curriculum has found out."""
        return {
            f"curriculum/{env}/{name}": value
            for env, curriculum in self.curricula.items()
            for name, value in curriculum.metrics().items()
        }

    def _task(self, name: str, number: int) -> Task:
        env = self.envs[name]
        task = Task(
            env=env,
            number=number,
            size=self.size or env.plan.rollouts.group,
            seed=derive_seed(self.seed, *self.names, name, number),
            order=derive_seed(self.seed, *self.names, name, "order"),
        )
        if name not in self.curricula:
            return task
        row = self._chosen(name, number)
        self._rows[name, number] = row
        return evolve(task, row=row)

    def _chosen(self, name: str, number: int) -> int:
        """The row that the curriculum has for a task; a spare one leaves its position alone."""
        curriculum, key = self.curricula[name], f"{name}.position"
        spare = number >= SPARES
        at = curriculum.next(number if spare else self.cursor.get(key, 0))
        if not spare:
            self.cursor[key] = at + 1
        return at % curriculum.count


def _solved(env: str) -> str:
    """Where a cursor has the shares of solved rollouts that its step has shown."""
    return f"{env}.solved"


def _curricula(
    envs: Mapping[str, PlayableEnv], seed: int, names: tuple[str, ...]
) -> dict[str, Curriculum]:
    """Those of the environments that have one."""
    made = {}
    for name, env in envs.items():
        if (wrapper := with_role(env.plan, "curriculum")) is None:
            continue
        assert env.count is not None, "a rule of the checker sees to it"
        made[name] = Curriculum(
            count=env.count, seed=derive_seed(seed, *names, name), **wrapper.args
        )
    return made


async def play_tasks(
    player: Player, tasks: Iterable[Task], on_group: Callable[[], None]
) -> list[Rollout]:
    """Play tasks side by side, the members of each in order."""
    return [member for group in await play_groups(player, tasks, on_group) for member in group]


async def play_groups(
    player: Player, tasks: Iterable[Task], on_group: Callable[[], None]
) -> list[list[Rollout]]:
    """Play tasks side by side; the members of each, in order."""

    async def play(task: Task) -> list[Rollout]:
        members = await play_task(player, task)
        on_group()
        return members

    return await all_of(map(play, tasks))


async def play_replacing(
    play: Callable[[Sequence[Task]], Awaitable[list[list[Rollout]]]],
    tasks: Sequence[Task],
    spare: Callable[[str, int], Task],
    spares: Iterator[int],
) -> list[Rollout]:
    """Play tasks; a group of equals is marked as replaced, and another task of its environment is
    played in its place, as long as there are numbers of spare ones. What is still equal then
    stays. A group that failed as a whole is left to what the recipe says of failures."""
    rollouts: list[Rollout] = []
    while tasks:
        fresh = list[Task]()
        for task, group in zip(tasks, await play(tasks), strict=True):
            if is_constant(group) and (number := next(spares, None)) is not None:
                fresh.append(spare(task.env.plan.name, number))
                group = [evolve(member, replaced=True) for member in group]
            rollouts.extend(group)
        tasks = fresh
    return rollouts


def is_constant(group: Iterable[Rollout]) -> bool:
    """Whether the members of a group all have one reward, in each role that was played."""
    rewards: dict[str, set[float]] = {}
    for rollout in group:
        if rollout.credit:
            rewards.setdefault(rollout.role, set()).add(rollout.reward)
    return bool(rewards) and all(len(found) == 1 for found in rewards.values())


def replaced_groups(rollouts: Iterable[Rollout], envs: Iterable[str]) -> dict[str, float]:
    """How many groups of each environment others were played in place of."""
    groups = {rollout.group for rollout in rollouts if rollout.replaced}
    return {f"resampled/{env}": float(sum(name == env for name, _ in groups)) for env in envs}


def require_any(rollouts: Iterable[Rollout]) -> None:
    """Raises RunError, with the first cause, if not one rollout succeeded."""
    failed = []
    for rollout in rollouts:
        if rollout.credit and rollout.error is None:
            return
        failed.append(rollout.error)
    cause = next((error for error in failed if error), "no episode had a reward")
    raise RunError(f"every rollout failed; the first cause: {cause}")
