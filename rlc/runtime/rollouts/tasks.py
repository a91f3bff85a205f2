"""Which tasks a stage plays, in which order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from random import Random
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from attrs import define, evolve, field, frozen

from rlc.algo import Floats, draw
from rlc.catalog import code_of, with_role
from rlc.data import WeightsFunction
from rlc.envs import JUDGE, PlayableEnv, TaskKey
from rlc.plan import EnvPlan
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

    def learn(self, step: int, lesson: Lesson) -> None:
        """Record the shares that a step measured."""
        self._pending[step] = lesson.solved

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


@frozen
class Lesson:
    """What a step's rollouts have taught of tasks, by their numbers: the shares that solved each,
    and the mean reward of those that did not fail."""

    solved: Mapping[int, float]
    rewards: Mapping[int, float]


@define
class WeightedTasks:
    """The tasks of one environment, drawn by weights that a function of the user's own gives them.

    The function is called at the beginning of each step, with what the steps that count until then
    have taught. A task that is drawn is not drawn again in the step, as long as there are others.
    """

    count: int
    seed: int
    weigh: WeightsFunction
    _history: dict[str, npt.NDArray[Any]] = field(init=False)
    _pending: dict[int, Lesson] = field(factory=dict, init=False)
    _weights_T: Floats = field(factory=lambda: np.zeros(0), init=False)
    _left_T: Floats = field(factory=lambda: np.zeros(0), init=False)

    @_history.default
    def _nothing_played(self) -> dict[str, npt.NDArray[Any]]:
        counts = {name: np.zeros(self.count, np.int64) for name in ("played_T", "last_T")}
        return counts | {n: np.full(self.count, np.nan) for n in ("reward_T", "solved_T")}

    def learn(self, step: int, lesson: Lesson) -> None:
        """Record what a step taught."""
        self._pending[step] = lesson

    def know(self, step: int) -> None:
        """Use what was learned up to the end of ``step`` from now on."""
        for earlier in sorted(known for known in self._pending if known <= step):
            self._learn(earlier, self._pending.pop(earlier))
        given = {name: value_T.copy() for name, value_T in self._history.items()}
        self._weights_T = self.weigh({**given, "step": step + 1})
        self._left_T = self._weights_T.copy()

    def _learn(self, step: int, lesson: Lesson) -> None:
        played_T, reward_T = self._history["played_T"], self._history["reward_T"]
        for row, reward in lesson.rewards.items():
            played_T[row] += 1
            before = reward_T[row] if played_T[row] > 1 else reward
            reward_T[row] = before + (reward - before) / played_T[row]
            self._history["solved_T"][row] = lesson.solved[row]
            self._history["last_T"][row] = step

    def next(self, position: int) -> int:
        """Return the first position from there on of the task that is drawn."""
        uniform = Random(derive_seed(self.seed, "curriculum", position)).random()
        if not self._left_T.any():
            self._left_T = self._weights_T.copy()
        ends_T = np.cumsum(self._left_T)
        drawn = int(np.searchsorted(ends_T, uniform * ends_T[-1], side="right"))
        row = min(drawn, int(np.flatnonzero(self._left_T)[-1]))  # it may be rounded up to the end
        self._left_T[row] = 0.0
        return position + (row - position) % self.count

    def metrics(self) -> dict[str, float]:
        """Return the share of all tasks that were played."""
        return {"known": float((self._history["played_T"] > 0).mean())}


def solved_share(rollouts: Iterable[Rollout]) -> float | None:
    """Return the share of a group that solved its task, failures aside; None if all failed."""
    deciding = _deciding(rollouts)
    return fmean(r.solved for r in deciding) if deciding else None


def mean_reward(rollouts: Iterable[Rollout]) -> float:
    """Return the mean reward of the same rollouts; 0 if all failed."""
    return fmean([r.reward for r in _deciding(rollouts)] or [0.0])


def _deciding(rollouts: Iterable[Rollout]) -> list[Rollout]:
    return [r for r in rollouts if r.role in ("", JUDGE) and r.error is None]


def _chooser(
    env: EnvPlan, count: int, seed: int, args: Mapping[str, Any]
) -> Curriculum | WeightedTasks:
    """Return what chooses among the tasks of an environment with a curriculum."""
    if "by" not in args:
        return Curriculum(count=count, seed=seed, **args)
    code = next(code for _, code in code_of(env) if code.kind == "weights")
    return WeightedTasks(count, seed, WeightsFunction(code))


_TAUGHT = ("solved", "rewards")  # what cursors keep of a lesson
BEGUN = ".begun"  # in a step's cursor; no environment has this name
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
    curricula: Mapping[str, Curriculum | WeightedTasks] = field(factory=dict)
    sampled: dict[int, list[Task]] = field(factory=dict, init=False)  # of each step under way
    cursors: dict[int, dict[str, Any]] = field(factory=dict, init=False)
    known: dict[int, dict[str, float]] = field(factory=dict, init=False)  # metrics of steps
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
        curricula = dict[str, Curriculum | WeightedTasks]()
        for name, env in envs.items():
            if (wrapper := with_role(env.plan, "curriculum")) is not None:
                assert env.count is not None, "the rules of the checker ensure it"
                stream = derive_seed(seed, *names, name)
                curricula[name] = _chooser(env.plan, env.count, stream, wrapper.args)
        for step, cursor in enumerate(cursors, start=1):
            for name, curriculum in curricula.items():
                taught = (cursor.get(f"{name}.{what}", {}) for what in _TAUGHT)
                curriculum.learn(
                    step, Lesson(*({int(n): v for n, v in of.items()} for of in taught))
                )
        last = dict(cursors[-1]) if cursors else new_cursor(list(envs))
        for name in curricula:
            for what in _TAUGHT:
                last.pop(f"{name}.{what}", None)
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
            self.know(known)
            self.step += 1
            self.sampled[self.step] = self.take(count)
            self.cursors[self.step] = dict(self.cursor)
        return self.sampled[step]

    def know(self, known: int) -> None:
        """Use what curricula learned in the steps up to ``known`` from now on."""
        for curriculum in self.curricula.values():
            curriculum.know(known)

    def spare(self, env: str, number: int) -> Task:
        """Return the ``number``-th task that replaces another, which the cursor never gets to."""
        return self._task(env, SPARES + number)

    def finish(self, step: int, rollouts: Iterable[Rollout]) -> dict[str, Any]:
        """Return the cursor at the end of a step, and forget the step. ``NAME.solved`` is what the
        step's rollouts have taught the curriculum of an environment."""
        del self.sampled[step]
        cursor: dict[str, Any] = {**self.cursors.pop(step)}
        groups = grouped(rollouts, lambda rollout: rollout.group)
        for env, curriculum in self.curricula.items():
            found = {
                self._rows.pop(group): (solved_share(members), mean_reward(members))
                for group, members in groups.items()
                if group[0] == env
            }
            solved = {row: share for row, (share, _) in found.items() if share is not None}
            lesson = Lesson(solved, {row: found[row][1] for row in solved})
            curriculum.learn(step, lesson)
            cursor[f"{env}.solved"] = solved
            if isinstance(curriculum, WeightedTasks):
                cursor[f"{env}.rewards"] = lesson.rewards
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


@define
class TaskRounds:
    """The tasks of steps that play ``size`` at once, some of them in further rounds, where up to
    ``ahead`` steps begin before an earlier one is done.

    Which tasks a step gets does not depend on what is over first: each takes its first round when
    it begins, and its further rounds come after the first ones of the steps that may have begun by
    then. So a step never waits for the tasks of another, but for a further round. Curricula know
    what is known for certain when the first step that may take the tasks begins.

    The cursor of a step is that after its last round. ``.begun`` has those before the first rounds
    of the steps that are in play with it, by which a resumed run plays these again.
    """

    stream: TaskStream
    size: int
    ahead: int
    _over: int = 0  # the last step that, as all before it, takes no more
    _begun: dict[int, dict[str, int]] = field(factory=dict, init=False)
    _ended: set[int] = field(factory=set, init=False)  # steps that take no more
    _waited: dict[int, asyncio.Event] = field(factory=dict, init=False)

    @classmethod
    def resumed(
        cls, stream: TaskStream, size: int, ahead: int, cursors: Sequence[Mapping[str, Any]]
    ) -> TaskRounds:
        """Return the rounds after the steps that left these cursors, and so the stream."""
        rounds, last = cls(stream, size, ahead, len(cursors)), stream.cursor
        for step, before in enumerate(
            cursors[-1].get(BEGUN, ()) if cursors else (), stream.step + 1
        ):
            stream.cursor = dict(before)
            rounds.first(step)
        stream.cursor = last
        return rounds

    def first(self, step: int) -> list[Task]:
        """Return the tasks of a step's first round."""
        stream = self.stream
        while stream.step < step:
            stream.know(max(stream.step - 2 * self.ahead, 0))
            stream.step += 1
            self._begun[stream.step] = dict(stream.cursor)
            stream.sampled[stream.step] = stream.take(self.size)
        return stream.sampled[step][: self.size]

    async def more(self, step: int) -> list[Task]:
        """Return the tasks of another round, once no step before takes any more."""
        if self._over < step - 1:
            await self._waited.setdefault(step - 1, asyncio.Event()).wait()
        self.first(step + self.ahead)
        tasks = self.stream.take(self.size)
        self.stream.sampled[step].extend(tasks)
        return tasks

    def end(self, step: int) -> None:
        """Let the tasks of other rounds be those of later steps."""
        self._ended.add(step)
        while (step := self._over + 1) in self._ended:
            self._ended.remove(step)
            self.first(step + self.ahead)
            begun = [self._begun[later] for later in range(step + 1, step + 1 + self.ahead)]
            self._begun.pop(step, None)
            self.stream.cursors[step] = {**self.stream.cursor, **({BEGUN: begun} if begun else {})}
            self.stream.known[step] = self.stream.metrics()
            self._over = step
            if (waited := self._waited.pop(step, None)) is not None:
                waited.set()


def new_cursor(envs: Sequence[str]) -> dict[str, int]:
    """Return the cursor before the first task."""
    return dict.fromkeys(envs, 0)
