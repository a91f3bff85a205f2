"""Which tasks a stage plays, in which order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.algo import draw
from rlc.catalog import with_role
from rlc.envs import JUDGE, PlayableEnv, TaskKey
from rlc.runtime.records import Rollout, grouped
from rlc.seeds import derive_seed


@define
class Curriculum:
    """The tasks 0 … ``count - 1`` of one environment, and how well each was last solved.

    They are visited in one order, round after round. A task of which a share of at most
    ``hopeless`` or at least ``solved`` of the rollouts solved it when it was last played is
    skipped, except with the probability ``explore``. What a step teaches counts from :meth:`know`
    on. All choices follow from the seed and from the shares of finished steps, which are journalled
    with their cursors.
    """

    count: int
    hopeless: float
    solved: float
    explore: float
    seed: int
    _shares: dict[int, float] = field(factory=dict, init=False)
    _pending: dict[int, Mapping[int, float]] = field(factory=dict, init=False)

    def learn(self, step: int, solved: Mapping[int, float]) -> None:
        """Record the shares that a step measured, by the number of the task."""
        self._pending[step] = solved

    def know(self, step: int) -> None:
        """Use what was learned up to the end of ``step`` from now on."""
        for earlier in sorted(known for known in self._pending if known <= step):
            self._shares.update(self._pending.pop(earlier))

    def next(self, position: int) -> int:
        """Return the first position from there on whose task is played, or itself if none is."""
        for at in range(position, position + self.count):
            share = self._shares.get(at % self.count)
            if share is None or self.hopeless < share < self.solved:
                return at
            if Random(derive_seed(self.seed, "curriculum", at)).random() < self.explore:
                return at
        return position

    def metrics(self) -> dict[str, float]:
        """Return the shares of all tasks that were played, and that are hopeless or solved."""
        shares = self._shares.values()
        return {
            "known": len(shares) / self.count,
            "hopeless": sum(share <= self.hopeless for share in shares) / self.count,
            "solved": sum(self.hopeless < share >= self.solved for share in shares) / self.count,
        }


def solved_share(rollouts: Iterable[Rollout]) -> float | None:
    """Return the share of a group that solved its task, failures aside; None if all failed."""
    deciding = [r for r in rollouts if r.role in ("", JUDGE) and r.error is None]
    return fmean(r.solved for r in deciding) if deciding else None


SPARES = 1_000_000_000  # the first number of a task that replaces another


@frozen
class Task:
    """One task to play with ``size`` members, all from the same state. ``seed`` names its random
    streams, ``order`` is the seed of the order of the environment's tasks, and ``row`` the place in
    that order, if it is not the number."""

    env: PlayableEnv
    number: int
    size: int
    seed: int
    order: int = 0
    row: int | None = None

    @property
    def key(self) -> TaskKey:
        place = self.number if self.row is None else self.row
        return TaskKey(self.order, place, derive_seed(self.seed, "env"), self.size)


@define
class TaskStream:
    """The tasks of a mixture in order.

    ``cursor`` counts the tasks sampled from each environment, and has the position of each
    curriculum as ``NAME.position``. A task follows from its number and the stream's ``names``, so a
    resumed run continues with the next one, and an evaluation that starts over has the same.
    """

    envs: Mapping[str, PlayableEnv]
    cursor: dict[str, int]
    seed: int
    names: tuple[str, ...]
    step: int = 0  # the last step whose tasks are sampled
    size: int | None = None  # members of a group; None: as each environment says
    curricula: Mapping[str, Curriculum] = field(factory=dict)
    _sampled: dict[int, list[Task]] = field(factory=dict, init=False)
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
        """Return the stream after the steps that left these cursors."""
        curricula = {}
        for name, env in envs.items():
            if (wrapper := with_role(env.plan, "curriculum")) is not None:
                assert env.count is not None, "the rules of the checker ensure it"
                stream = derive_seed(seed, *names, name)
                curricula[name] = Curriculum(count=env.count, seed=stream, **wrapper.args)
        for step, cursor in enumerate(cursors, start=1):
            for name, curriculum in curricula.items():
                solved = cursor[f"{name}.solved"]
                curriculum.learn(step, {int(row): share for row, share in solved.items()})
        last = dict(cursors[-1]) if cursors else new_cursor(list(envs))
        for name in curricula:
            last.pop(f"{name}.solved", None)
        last = {name: last[name] for name in last if not name.startswith(".")}
        return cls(envs, last, seed, names, len(cursors), curricula=curricula)

    def take(self, count: int) -> list[Task]:
        """Return the next ``count`` tasks."""
        weights = {name: env.plan.weight for name, env in self.envs.items()}
        return [self._task(env, number) for env, number in draw(weights, self.cursor, count)]

    def of_step(self, step: int, count: int, known: int = 0) -> list[Task]:
        """Return the ``count`` tasks of a step, the same at each call, after those of the steps
        before. What curricula learned in the steps up to ``known`` may decide which they are."""
        while self.step < step:
            for curriculum in self.curricula.values():
                curriculum.know(known)
            tasks = self.take(count)
            self.end_step()
            self._sampled[self.step] = tasks
        return self._sampled[step]

    def spare(self, env: str, number: int) -> Task:
        """Return the ``number``-th task that replaces another, which the cursor never gets to."""
        return self._task(env, SPARES + number)

    def end_step(self) -> None:
        """Let the tasks taken from now on belong to the next step."""
        self.step += 1
        self._cursors[self.step] = dict(self.cursor)

    def finish(self, step: int, rollouts: Iterable[Rollout]) -> dict[str, Any]:
        """Return the cursor at the end of a step, and forget the step. ``NAME.solved`` is what the
        step's rollouts have taught the curriculum of an environment."""
        self._sampled.pop(step, None)
        cursor: dict[str, Any] = {**self._cursors.pop(step)}
        groups = grouped(rollouts, lambda rollout: rollout.group)
        for env, curriculum in self.curricula.items():
            found = {
                self._rows.pop(group): solved_share(members)
                for group, members in groups.items()
                if group[0] == env
            }
            shares = {row: share for row, share in found.items() if share is not None}
            curriculum.learn(step, shares)
            cursor[f"{env}.solved"] = shares
        return cursor

    def metrics(self) -> dict[str, float]:
        """Return the metrics of all curricula."""
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
        curriculum, key = self.curricula[name], f"{name}.position"
        if number >= SPARES:
            position = curriculum.next(number)
        else:
            position = curriculum.next(self.cursor.get(key, 0))
            self.cursor[key] = position + 1
        self._rows[name, number] = row = position % curriculum.count
        return evolve(task, row=row)


def new_cursor(envs: Sequence[str]) -> dict[str, int]:
    """Return the cursor before the first task."""
    return dict.fromkeys(envs, 0)
