"""Groups of rollouts: played in roles, compared, many side by side, handed on in parts.

In roles there is a rollout for each solver and for the judge of every member. The solvers of all
members have one prompt, so their replies come from one request. A judge sees the solutions of its
own member; if a solver failed for good, the judge fails with it.

Rewards that compare members, and those of reward models, are given once all members are over,
except to members that failed. If a judgement fails it is tried again as the plan allows, then the
members fail with it. Last come rewards that are shaped by what the group has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from math import ceil, fsum
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.catalog import chat_history_of
from rlc.chat import (
    ChatFormat,
    EnvError,
    Observation,
    PromptBuilder,
    Verdict,
    ViewChange,
    caching,
    fitting_renderer,
)
from rlc.data import DataError
from rlc.envs import (
    JUDGE,
    SOLVER,
    AsyncEpisode,
    ComparisonVerdict,
    JudgedReward,
    PlayableEnv,
    Responders,
    SolverJudge,
    TaskKey,
    all_of,
    build_env,
    rewarded,
)
from rlc.plan import EnvPlan, RewardModelPlan
from rlc.runtime.concurrency import cancel_all
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.credit import (
    ShapedRewardError,
    credited,
    is_compared,
    shaped_in_group,
)
from rlc.runtime.rollouts.games import play_game
from rlc.runtime.rollouts.player import Player
from rlc.runtime.rollouts.tasks import Task
from rlc.runtime.rollouts.tokens import merged_sequences
from rlc.seeds import derive_seed
from rlc.service import ServiceLostError


def build_envs(
    envs: Iterable[EnvPlan],
    tokenizer: Any,
    renderer: str,
    responders: Responders,
    views: Callable[[str], Mapping[str, ViewChange]] = lambda _: {},
) -> dict[str, PlayableEnv]:
    """Return environments by name, or raise RunError; ``views`` are those of other models."""
    tokenizer = caching(tokenizer)  # agents encode in threads, others do not

    def build(plan: EnvPlan) -> PlayableEnv:
        env = build_env(plan, tokenizer, renderer, responders, views(plan.name))
        if plan.agent is None:
            return env
        try:
            from rlc.runtime.rollouts.agents import AgentsEndpoint
        except ModuleNotFoundError as error:
            what = f"agents are served with a package that is not here: {error.name}"
            raise EnvError(what, "pip install 'rlc[serve]'") from error
        places = asyncio.Semaphore(plan.agent.concurrency)
        fitting = fitting_renderer(tokenizer, renderer)
        chats = ChatFormat(fitting, chat_history_of(plan))
        agents = AgentsEndpoint(tokenizer, chats, places)
        return evolve(env, endpoint=agents)

    try:
        return {env.name: build(env) for env in envs}
    except (DataError, EnvError) as error:
        raise RunError(str(error), error.hint) from error


async def compare(player: Player, task: Task, rollouts: Sequence[Rollout]) -> list[Rollout]:
    """Return the rollouts of a group with the verdicts of its comparisons, and their credit."""
    usable = [at for at, rollout in enumerate(rollouts) if rollout.error is None and rollout.turns]
    group = list(rollouts)
    try:
        for judging in task.env.comparing if usable else ():
            # A score, which is no comparison, is given to episodes that ended by themselves.
            scores = judging.plan.by == "score"
            mine = [at for at in usable if not scores or group[at].ended in ("done", "truncated")]
            judged = await _judged(player, task, judging, [group[at] for at in mine])
            for at, rollout in zip(mine, judged, strict=True):
                group[at] = rollout
        for at in usable:
            group[at] = credited(group[at], task.env.plan.reward)
    except ServiceLostError:
        raise
    except Exception as error:
        for at in usable:
            group[at] = player.failed(group[at], error)
    return group


async def _judged(
    player: Player, task: Task, judging: JudgedReward, rollouts: Sequence[Rollout]
) -> list[Rollout]:
    """Return a group with its verdicts, tried as often as the plan allows."""
    episodes = [[(turn.observation, turn.action) for turn in r.turns] for r in rollouts]
    found: list[list[ComparisonVerdict]] = [[] for _ in rollouts]
    for attempt in range(player.on_error.retries + 1):
        order = Random(derive_seed(task.seed, "comparison", attempt))
        try:
            learnt = [await _learnt(task, judging, model, rollouts) for model in judging.rewards]
            if judging.plan.by != "score":
                found = await judging.compare(task.key, episodes, order)
            found = [[*given, *more] for given, *more in zip(found, *learnt, strict=True)]
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
    """Return the implicit rewards by a model, or the shares of the others that they exceed."""
    read = await all_of(_implicit_reward(task, judging, model, one) for one in rollouts)
    rewards = [reward for reward, _ in read]
    if judging.plan.by != "score":
        rewards = above(rewards)
    return [
        ComparisonVerdict(Verdict(model.name, reward, text), {model.name: (model.weight, reward)})
        for reward, (_, text) in zip(rewards, read, strict=True)
    ]


async def _implicit_reward(
    task: Task, judging: JudgedReward, model: RewardModelPlan, rollout: Rollout
) -> tuple[float, str]:
    """Return β (log π − log π_ref) of the last reply, or of all, and its terms in words."""
    assert model.reference is not None
    assert model.beta is not None
    last = len(rollout.turns) - 1
    judged = range(last + 1) if judging.plan.whole else (last,)
    replies = [
        (sequence.tokens, sequence.chunks, places)
        for sequence in merged_sequences(rollout.turns)
        if (places := [at for at, turn in enumerate(sequence.turns) if turn in judged])
    ]
    count = sum(len(places) for *_, places in replies)
    read = task.env.responders.logprob
    now = await all_of(read(model.model, *reply) for reply in replies)
    before = await all_of(read(model.reference, *reply) for reply in replies)
    reward = model.beta * (fsum(now) - fsum(before)) / (count if model.mean else 1)
    return reward, f"log p {fsum(now):.2f}, before {fsum(before):.2f}, of {count} tokens"


def above(rewards: Sequence[float]) -> list[float]:
    """Return the share of the other rewards that each exceeds; equals count half."""
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


async def play_task(player: Player, task: Task) -> list[Rollout]:
    """Return all rollouts of a task by member: its solvers, then its judge, or its seats. All fail
    that are to be compared by a reward which cannot be computed."""
    played = await _played(player, task)
    try:
        return shaped_in_group(task.env.plan.reward, played)
    except ShapedRewardError as error:
        return [
            player.failed(evolve(one, raw=None), error) if is_compared(one) else one
            for one in played
        ]


async def _played(player: Player, task: Task) -> list[Rollout]:
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
    """Return the part of one role in a task, as a task of its own."""
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
        """Do nothing: the source is closed with its environment."""


async def play_groups(
    player: Player, tasks: Iterable[Task], on_group: Callable[[list[Rollout]], None]
) -> list[list[Rollout]]:
    """Play tasks concurrently; return the members of each, after ``on_group`` has had them."""

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
    there are numbers of ``spares``. A group that failed as a whole is not replaced.
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
    """Return whether the members of a group have the same reward, in each role."""
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


Group = list[Rollout]


@define(eq=False)
class StreamedGroups:
    """The groups of a step, handed on in parts while others are still played.

    In a ``fixed`` order a part is the same groups each time. Otherwise it is those that are in, as
    soon as they are its share of all and no gradient is being computed, or the last group is in:
    groups that come in while a gradient is computed are trained on together. Then there may be
    fewer parts than planned; the remaining ones are empty.

    Which groups of equals are replaced, and by which tasks, depends on all groups of a step. So
    those that ``deferred`` names are held back until all are in, and come last, with the result of
    ``replaced`` on their numbers and rollouts. ``gradients``: a gradient is taken of each part.
    """

    parts: int
    fixed: bool
    gradients: bool
    deferred: Callable[[Group], bool]
    replaced: Callable[[Sequence[int], Sequence[Group]], Awaitable[list[Rollout]]]
    _tasks: list[asyncio.Task[None]] = field(factory=list, init=False)
    _playing: set[int] = field(factory=set, init=False)
    _ready: dict[int, Group] = field(factory=dict, init=False)
    _deferred: dict[int, Group] = field(factory=dict, init=False)
    _given: int = field(default=0, init=False)  # parts
    _failure: BaseException | None = field(default=None, init=False)
    _training: bool = field(default=False, init=False)
    _changed: asyncio.Event = field(factory=asyncio.Event, init=False)
    _lock: asyncio.Lock = field(factory=asyncio.Lock, init=False)

    def start(self, groups: Iterable[Coroutine[Any, Any, Group]]) -> None:
        self._tasks = [
            asyncio.create_task(self._play(number, group)) for number, group in enumerate(groups)
        ]
        self._playing = set(range(len(self._tasks)))

    async def _play(self, number: int, group: Coroutine[Any, Any, Group]) -> None:
        try:
            rollouts = await group
        except Exception as error:
            self._failure = self._failure or error
        else:
            (self._deferred if self.deferred(rollouts) else self._ready)[number] = rollouts
        self._playing.discard(number)
        self._changed.set()

    async def part(self) -> list[Rollout]:
        """Return the rollouts of the next part, group by group; raise what playing one raised."""
        async with self._lock:
            self._given += 1
            try:
                while not self._part_is_ready():
                    self._changed.clear()
                    await self._changed.wait()
                due = sorted(n for n in self._ready if not self.fixed or n < self._end)
                part = [self._ready.pop(number) for number in due]
                # Held back until the last part, or until all others are given in any order.
                last = self._given == self.parts or not (self.fixed or part or self._playing)
                if self._deferred and last:
                    equals, self._deferred = dict(sorted(self._deferred.items())), {}
                    part.append(await self.replaced(list(equals), list(equals.values())))
            except BaseException:
                await cancel_all(self._tasks)
                raise
            self._training = self.gradients and bool(part)
            return [rollout for group in part for rollout in group]

    @property
    def _end(self) -> int:
        """The number of groups in this part and those before it, in a fixed order."""
        return len(self._tasks) * self._given // self.parts

    def _part_is_ready(self) -> bool:
        if self._failure is not None:
            raise self._failure
        if self.fixed:
            return min(self._playing, default=self._end) >= self._end
        share = max(1, ceil(len(self._tasks) / self.parts))
        return not self._playing or (len(self._ready) >= share and not self._training)

    def gradients_submitted(self, outputs: Sequence[asyncio.Future[Any]]) -> None:
        """Record the gradients of the last part; none if it had nothing to train on."""

        def trained(_: Any = None) -> None:
            self._training = False
            self._changed.set()

        if outputs:
            asyncio.gather(*outputs, return_exceptions=True).add_done_callback(trained)
        else:
            trained()
