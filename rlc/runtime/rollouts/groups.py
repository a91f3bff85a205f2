"""Groups of rollouts: played in roles, compared, many side by side.

In roles there is a rollout for each solver and for the judge of every member. The solvers of all
members have one prompt, so their replies come from one request. A judge sees the solutions of its
own member; if a solver failed for good, the judge fails with it.

Rewards that compare members, and those of reward models, are given once all members are over,
except to members that failed. If a judgement fails it is tried again as the plan allows, then the
members fail with it. Last come rewards that are shaped by what the group has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from math import fsum
from random import Random
from typing import Any

from attrs import evolve, frozen

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


TaskPlayer = Callable[[Player, Task], Awaitable[list[Rollout]]]


async def play_group(
    player: Player,
    on_group: Callable[[list[Rollout]], None],
    task: Task,
    play: TaskPlayer = play_task,
) -> list[Rollout]:
    """Play a task; return its members, after ``on_group`` has had them. ``play`` is what plays it:
    this process, or one of several players."""
    members = await play(player, task)
    on_group(members)
    return members


async def play_groups(
    player: Player,
    tasks: Iterable[Task],
    on_group: Callable[[list[Rollout]], None],
    play: TaskPlayer = play_task,
) -> list[list[Rollout]]:
    """Play tasks concurrently, each as :func:`play_group` does."""
    return await all_of(play_group(player, on_group, task, play) for task in tasks)


def require_any(rollouts: Sequence[Rollout]) -> None:
    """Raise RunError, with the first cause, if no rollout succeeded."""
    if not any(rollout.credit and rollout.error is None for rollout in rollouts):
        causes = (str(rollout.failure) for rollout in rollouts if rollout.failure)
        cause = next(causes, "no episode had a reward")
        raise RunError(f"every rollout failed; the first cause: {cause}")
