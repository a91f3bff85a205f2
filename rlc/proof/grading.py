"""One reply, or a scripted conversation, through everything that a run would do with it.

The environment is made as a run makes it, and the run's own player plays it: prompt, template,
parser, grader, judges, the shaping of rewards, limits. Only the replies are not sampled.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

from attrs import asdict, evolve, field, frozen

from rlc.catalog import located_files, provide_keys, rubrics_of, source_traits, wrapper_traits
from rlc.chat import readable_text
from rlc.check import known_values
from rlc.data import search_beside
from rlc.envs import JUDGE, Observation, PlayableEnv, Responders, validated
from rlc.errors import Error
from rlc.plan import EnvPlan, FailurePlan, JudgePlan, Plan, SamplingPlan, StagePlan
from rlc.proof.scripted import (
    Opinion,
    Policy,
    PolicyTurn,
    ScriptedJudges,
    ScriptedPlayer,
    ScriptOverError,
    fitting_or_plain,
    stand_in_note,
    tokenizer_of,
)
from rlc.runtime import (
    Rollout,
    Task,
    TaskStream,
    Usage,
    build_envs,
    close_envs,
    in_thread,
    play_task,
)

T = TypeVar("T")
GivenTask = int | Mapping[str, Any]  # a task by its number in the run, or a row of data
JudgeScores = float | Mapping[str, float] | Sequence[float] | None
_KEEP_TURNS = FailurePlan(retries=0, then="penalise", penalty=0.0)
UNFINISHED = "unfinished"  # how an episode ended whose script was over first


@frozen
class TurnGrade:
    """One turn of an episode, and what the environment made of it.

    Attributes:
        observation: what the environment had said.
        reply: the action, as the environment got it: without thinking and the end of the turn.
        reward: of this turn; None if it has none of its own.
        components: the parts of the reward by name, weight times value.
        metrics: what the environment measured.
        calls: the tools that were called, with their arguments in JSON.
        stop_reason: ``stop``, or ``length`` if the reply was cut off at ``max_tokens``.
        verdicts: what judges said, by their names.
    """

    observation: str
    reply: str
    reward: float | None
    components: Mapping[str, float] = field(factory=dict)
    metrics: Mapping[str, float] = field(factory=dict)
    calls: tuple[tuple[str, str], ...] = ()
    stop_reason: str = "stop"
    verdicts: Mapping[str, str] = field(factory=dict)


@frozen
class EpisodeGrade:
    """What a run would have made of an episode.

    Attributes:
        prompt: the first prompt, as the model would see it.
        turns: the turns, a :class:`TurnGrade` each.
        reward: what the episode is credited with, shaped; None if it failed, or is not over.
        raw: the reward before it was shaped; None if nothing shapes it.
        components: the parts of the reward over all turns, weight times value.
        metrics: what the environment measured last.
        ended: ``done``, ``truncated``, a limit such as ``turns``, ``failed``, or ``unfinished`` if
            the episode goes on after the last reply; ``waiting`` is then what was said to that.
        error: why it failed, and ``traceback`` where in the code of one's own.
        rank: the place in the group by reward, from 1; equal ones share it.
        role: of games and of solvers with a judge.
        seconds: that it took.
    """

    prompt: str
    turns: tuple[TurnGrade, ...]
    reward: float | None
    raw: float | None
    components: Mapping[str, float]
    metrics: Mapping[str, float]
    ended: str
    solved: bool
    rank: int = 1
    role: str = ""
    error: str | None = None
    traceback: str | None = None
    waiting: str | None = None
    seconds: float = 0.0


@frozen
class GroupGrade:
    """The episodes of one task, in the order of their replies; in games, of each trained seat.

    Attributes:
        env, stage: the environment, and the stage that plays it.
        task: the number of the task in the run.
        row: where its row of data stands, or "".
        note: what stands in for the model, as far as something does.
        episodes: an :class:`EpisodeGrade` for each conversation.
    """

    env: str
    stage: str
    task: int
    row: str
    note: str
    episodes: tuple[EpisodeGrade, ...]

    @property
    def reward(self) -> float | None:
        """The reward of the first episode."""
        return self.episodes[0].reward

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def stage_environments(plan: Plan) -> Iterator[tuple[StagePlan, EnvPlan]]:
    """Yield the environments of a plan with their stages, first of those that play them with their
    own model."""
    for stage in sorted(plan.stages, key=lambda stage: not stage.played):
        for env in stage.environments:
            yield stage, env


def played_environments(plan: Plan) -> list[tuple[StagePlan, EnvPlan]]:
    """Return each environment of a plan once, with the first stage that plays it."""
    found: dict[str, tuple[StagePlan, EnvPlan]] = {}
    for stage, env in stage_environments(plan):
        found.setdefault(env.name, (stage, env))
    return [*found.values()]


def chosen_environment(plan: Plan, name: str | None) -> tuple[StagePlan, EnvPlan]:
    """Return an environment by name, or the only one. Raise Error if there is none, or several."""
    known = {env.name: (stage, env) for stage, env in played_environments(plan)}
    if not known:
        raise Error(f"{plan.recipe} plays no environment", "it learns from data alone")
    if name is None and len(known) > 1:
        listed = ", ".join(f"`{one}`" for one in known)
        raise Error(f"{plan.recipe} has several environments", f"name one of {listed}")
    if name is not None and name not in known:
        what = f"{plan.recipe} has no environment `{name}`"
        raise Error(what, known_values([*known], name))
    return known[name or next(iter(known))]


@frozen(eq=False)
class GradingBench:
    """An environment that is open, in which scripted policies play; :func:`opened` makes one."""

    stage: StagePlan
    env: PlayableEnv
    tokenizer: Any
    judges: ScriptedJudges
    seed: int
    context: int | None
    note: str
    of_row: bool = False  # it has the one row that was given

    async def play(self, task: int, size: int, policy: Policy) -> tuple[list[Rollout], Any]:
        """Return the rollouts of a group of a task, and the player. What fails is not repeated."""
        sampling = self.stage.sampling or SamplingPlan(None)
        one = self._task(task, size)
        limits = sampling, self.context, _KEEP_TURNS, Usage()
        scripted = {"policy": policy, "tokenizer": self.tokenizer, "roles": self.env.roles}
        player = ScriptedPlayer(None, *limits, **scripted)  # type: ignore[arg-type]
        return await play_task(player, one), player

    def _task(self, number: int, size: int) -> Task:
        name = self.env.plan.name
        names = "eval" if self.stage.kind == "eval" else "task", self.stage.name
        stream = TaskStream({name: self.env}, {name: number}, self.seed, names, size=size)
        (one,) = stream.take(1)
        return one

    async def first(self, task: int) -> Observation:
        """Return the first observation of a task."""
        size = (
            self.env.plan.rollouts.group if source_traits(self.env.plan.source).fixed_groups else 1
        )
        episodes = await self.env.source.open(self._task(task, size).key, range(size))
        try:
            return validated(episodes[0].first)
        finally:
            for episode in episodes:
                await episode.close()

    async def grade(
        self, task: int, conversations: Sequence[Sequence[str]], size: int | None = None
    ) -> GroupGrade:
        """Return what becomes of a group of conversations, each a list of replies."""
        picks = self.env.roles is not None

        def policy(asked: PolicyTurn) -> str | None:
            member = len(conversations) - 1 if asked.role == JUDGE else asked.member
            said = conversations[member] if member < len(conversations) else ()
            return said[asked.turn] if asked.turn < len(said) else None

        if size is None:
            size = 1 if picks or self.env.plan.play is not None else len(conversations)
        self.judges.replies[:] = [reply for said in conversations for reply in said]
        began = time.perf_counter()
        rollouts, player = await self.play(task, size, policy)
        seconds = (time.perf_counter() - began) / max(len(rollouts), 1)
        return self._group(task, rollouts, player.last_prompts, seconds)

    def _group(
        self,
        task: int,
        rollouts: Sequence[Rollout],
        prompts: Mapping[tuple[str, int], str],
        seconds: float,
    ) -> GroupGrade:
        rewards = [one.reward if one.error is None else float("-inf") for one in rollouts]
        about = next((one.about for one in rollouts if one.about is not None), None)
        return GroupGrade(
            self.env.plan.name,
            self.stage.name,
            task,
            about.place if about and not self.of_row else "",
            self.note,
            tuple(
                self._episode(one, prompts, 1 + sum(r > reward for r in rewards), seconds)
                for one, reward in zip(rollouts, rewards, strict=True)
            ),
        )

    def _episode(
        self,
        rollout: Rollout,
        prompts: Mapping[tuple[str, int], str],
        rank: int,
        seconds: float,
    ) -> EpisodeGrade:
        turns = rollout.turns
        unfinished = rollout.cause == ScriptOverError.cause
        key = (rollout.role, 0) if rollout.role == JUDGE else ("", rollout.member)
        asked = prompts.get(key, "")
        if turns:
            first = readable_text([*turns[0].prompt], turns[0].chunks, self.tokenizer)
            *_, last = turns
            before = readable_text([*last.prompt, *last.tokens], last.chunks, self.tokenizer)
            asked = asked.removeprefix(before)
        else:
            first, asked = asked, ""
        failure = None if unfinished else rollout.failure
        counts = rollout.error is None and bool(rollout.credit)
        graded = tuple(
            TurnGrade(
                turn.observation,
                turn.action,
                turn.reward,
                {name: weight * value for name, (weight, value) in turn.components.items()},
                turn.metrics,
                tuple((tool, arguments) for _, tool, arguments in turn.calls),
                turn.stop_reason,
                {one.judge: one.reason for one in turn.verdicts},
            )
            for turn in turns
        )
        return EpisodeGrade(
            prompt=first,
            turns=graded,
            reward=rollout.reward if counts else None,
            raw=rollout.raw if counts else None,
            components=_summed(turn.components for turn in graded),
            metrics=rollout.last_metrics,
            ended=UNFINISHED if unfinished else rollout.ended,
            solved=counts and rollout.solved,
            rank=rank,
            role=rollout.role,
            error=None if unfinished else rollout.error,
            traceback=failure.traceback if failure and failure.place else None,
            waiting=asked if unfinished else None,
            seconds=seconds,
        )


def _summed(parts: Iterator[Mapping[str, float]] | Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


@asynccontextmanager
async def opened(
    plan: Plan,
    env: str | None = None,
    row: Mapping[str, Any] | None = None,
    opinion: Opinion | None = None,
    responders: Responders | None = None,
) -> AsyncIterator[GradingBench]:
    """Open an environment of a plan for scripted policies; with ``row``, for that row of data in
    place of its own; with ``responders`` its judges are asked. Raise Error if it cannot be made."""
    stage, chosen = chosen_environment(plan, env)
    search_beside(plan.recipe)
    provide_keys(plan)
    (there,) = [e for _, e in played_environments(located_files(plan)) if e.name == chosen.name]
    with _of_row(there, row) as here:
        judges = ScriptedJudges(here, opinion)
        named = any(wrapper_traits(one.name).chat_template for one in here.wrappers)
        tokenizer = tokenizer_of(stage.model, template=named)
        renderer = fitting_or_plain(stage.model, tokenizer)
        try:
            made = await in_thread(build_envs, [here], tokenizer, renderer, responders or judges)
        except Error as error:
            if row is None:
                raise
            raise Error(error.message.replace(f"{here.id}:1", "the row"), error.hint) from error
        given = stage, made[here.name], tokenizer, judges, plan.seed, stage.model.context
        note = stand_in_note(stage.model, tokenizer, renderer)
        bench = GradingBench(*given, note, of_row=row is not None)
        try:
            yield bench
        finally:
            await close_envs(made.values())


@contextmanager
def _of_row(env: EnvPlan, row: Mapping[str, Any] | None) -> Iterator[EnvPlan]:
    """Yield an environment of the one row, in a file of its own while it is open."""
    if row is None:
        yield env
        return
    if not source_traits(env.source).graded:
        what = f"the tasks of `{env.name}` are no rows of data, so none can be written out"
        raise Error(what, "give the number of a task")
    with tempfile.TemporaryDirectory(prefix="rlc-row-") as folder:
        path = os.path.join(folder, "row.jsonl")
        fields = {name: value for name, value in row.items() if name != "split"}
        text = json.dumps(fields, ensure_ascii=False)
        _require_unicode(text, "the row")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        args = {"split": "train", "shuffle": False, "samples": None}
        yield evolve(env, id=path, args={**env.args, **args})


def grade(
    plan: Plan,
    replies: str | Sequence[str | Sequence[str]],
    env: str | None = None,
    task: GivenTask = 0,
    judge: JudgeScores = None,
) -> GroupGrade:
    """Return what a run would make of scripted replies; see :func:`rlc.grade`."""
    conversations = conversations_of(replies)
    number, row = (task, None) if isinstance(task, int) else (0, task)
    if number < 0:
        raise Error(f"there is no task {number}", "tasks count from 0")
    if judge is not None and isinstance(judge, Sequence) and len(judge) != len(conversations):
        what = f"{len(judge)} scores of a judge are given for {len(conversations)} replies"
        raise Error(what, "give one for each, or one for all")

    opinion = None
    if judge is not None:
        opinion = partial_opinion(judge, conversations)
        _require_judges(chosen_environment(plan, env)[1], judge)

    async def work() -> GroupGrade:
        async with opened(plan, env, row, opinion) as bench:
            return await bench.grade(number, conversations)

    return to_end(work)


def conversations_of(replies: str | Sequence[str | Sequence[str]]) -> list[list[str]]:
    """Return replies as a list of conversations. Raise Error if there are none."""
    given = [replies] if isinstance(replies, str) else replies
    found = [[one] if isinstance(one, str) else [*one] for one in given]
    if not found or any(not isinstance(reply, str) for said in found for reply in said):
        raise Error(
            "there is no reply to grade", "a reply is a text, a conversation a list of them"
        )
    for said in found:
        _require_unicode("".join(said), "a reply")
    return found


def _require_unicode(text: str, what: str) -> None:
    """Raise Error for half of a surrogate pair, which no tokenizer and no file takes."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"U+{ord(text[error.start]):04X}"
        hint = "it comes from bytes that are not UTF-8, or from half of an escaped pair"
        raise Error(f"{what} has {half}, which is half of a character", hint) from error


def _require_judges(env: EnvPlan, scores: JudgeScores) -> None:
    """Raise Error for scores of judges that an environment does not have."""
    names = [judge.name for _, _, judge in rubrics_of(env)]
    if not names:
        raise Error(f"`{env.name}` asks no judge", "leave out what judges say")
    for name in scores if isinstance(scores, Mapping) else ():
        if name not in names:
            raise Error(f"`{env.name}` asks no judge `{name}`", known_values(names, name))


def partial_opinion(judge: JudgeScores, conversations: Sequence[Sequence[str]]) -> Opinion:
    """Return the opinion of judges that give these scores, each from 0 to 1."""
    numbers = judge.values() if isinstance(judge, Mapping) else judge
    listed = [numbers] if isinstance(numbers, int | float) else [*(numbers or ())]
    if wrong := [one for one in listed if not 0 <= one <= 1]:
        raise Error(
            f"a judge's score is from 0 to 1, not {wrong[0]:g}", "0 is the worst, 1 the best"
        )

    def opinion(plan: JudgePlan, reply: str) -> float:
        if isinstance(judge, Mapping):
            if plan.name not in judge:
                hint = known_values([*judge], plan.name)
                raise Error(f"no score of the judge `{plan.name}` is given", hint)
            return judge[plan.name]
        if isinstance(judge, Sequence):
            at = (n for n, said in enumerate(conversations) if reply in said)
            return judge[next(at, 0)]
        assert judge is not None
        return judge

    return opinion


def to_end(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end, in another thread if this one has a running event loop."""
    loop = None
    with suppress(RuntimeError):
        loop = asyncio.get_running_loop()
    if loop is None:
        return asyncio.run(work())
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(asyncio.run, work()).result()
