"""Episodes that are played for a stage to learn from: each once, then kept in the run folder.

They are samples of another model; demonstrations, which went well; or pairs of preferences, the
best and the worst of several replies to a task.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import ceil
from types import MappingProxyType
from typing import Any

from attrs import asdict, define, evolve, field, frozen

from rlc.catalog import DEFAULT_FAILURE, DEFAULT_SAMPLING, functions_of
from rlc.chat import AS_PLAYED, ViewChange, chunks_of, encoded_reply
from rlc.data import ChoiceFunction, PlayedEpisode
from rlc.envs import AsyncEpisode, Oracle, PlayableEnv, all_of, find_oracle
from rlc.plan import (
    BudgetPlan,
    Demonstrations,
    EnvPlan,
    ModelPlan,
    PreferredPairs,
    RolloutsPlan,
    Samples,
    SamplingPlan,
    Training,
)
from rlc.runtime.concurrency import in_thread
from rlc.runtime.journal.database import NOTHING, PROBES, Meter, RecordedUsage
from rlc.runtime.journal.folder import RunFolder, episodes_file, part_of
from rlc.runtime.records import Rollout, RunError, Turn
from rlc.runtime.rollouts.credit import credited, shaped_in_group
from rlc.runtime.rollouts.groups import build_envs, play_task
from rlc.runtime.rollouts.player import Player, close_all, close_envs
from rlc.runtime.rollouts.tasks import Task, TaskStream, new_cursor
from rlc.runtime.rollouts.tokens import TokenSequence, merged_sequences
from rlc.runtime.stages.base import Setup
from rlc.runtime.stages.file_examples import CHOSEN, RATINGS, REJECTED
from rlc.service import SamplingClient

Play = Callable[[Task], Awaitable[list[Rollout]]]

_STUDENT = "student"  # the view of the model that learns, if it is not the player's

MOST_TRIES = 20  # episodes for each demonstration, tasks for each pair
WAVE, LARGE_WAVE = 64, 512  # tasks played side by side: on this machine, on a server


@frozen
class KeptEpisode:
    """One episode as it is kept: its sequences, none if it failed, and its reward. ``task`` numbers
    the environment's tasks, ``digest`` is the same for all episodes from one first observation;
    ``components`` are those of the reward, and ``tokens`` those that were sampled."""

    env: str
    task: int
    member: int
    role: str
    digest: str
    reward: float
    solved: bool
    actions: Sequence[str] = field(repr=False)
    sequences: Sequence[Mapping[str, Any]] = field(repr=False)  # those of TokenSequence.written
    components: Mapping[str, float] = field(factory=dict)
    tokens: int = 0

    @classmethod
    def of(cls, rollout: Rollout, sequences: Sequence[TokenSequence]) -> KeptEpisode:
        return cls(
            rollout.env,
            rollout.task,
            rollout.member,
            rollout.role,
            rollout.digest,
            rollout.reward,
            rollout.solved,
            [turn.action for turn in rollout.turns],
            [sequence.written() for sequence in sequences] if rollout.turns else [],
            {name: sum(value_T) for name, (_, value_T) in rollout.components.items()},
            sum(len(turn.tokens) for turn in rollout.turns),
        )

    def played(self) -> PlayedEpisode:
        """Return what a function of the user's own is told of it."""
        told = self.reward, self.solved, dict(self.components), self.tokens
        return PlayedEpisode(self.task, tuple(self.actions), *told)

    def example(self) -> dict[str, Any]:
        """Return the example of a supervised stage."""
        names = ("env", "task", "reward", "actions", "sequences")
        return {name: getattr(self, name) for name in names}


@define(eq=False)
class EpisodeSampler:
    """Plays the tasks of a stream for a ``stage``, and keeps them in the run folder.

    A resumed run plays and pays for none of them again: those of a ``model`` on this machine are
    written batch by batch, so that batches stay as they were; those of a server as soon as they are
    played. ``play`` returns the episodes of a task, whose tokens ``meter`` counts; without one they
    cost nothing, and nothing is kept. ``view`` is the one whose sequences are kept, the player's if
    empty. No batch is begun for which the ``budget`` of the stage has no room.
    """

    folder: RunFolder
    stage: str
    stream: TaskStream
    model: ModelPlan
    play: Play
    meter: Meter | None
    view: str = ""
    budget: BudgetPlan | None = None
    _last: RecordedUsage = field(default=NOTHING, init=False)  # of the last batch
    _known: dict[int, list[KeptEpisode]] = field(factory=dict, init=False)

    @property
    def file(self) -> str:
        return episodes_file(self.stage)

    def __attrs_post_init__(self) -> None:
        if (self.folder.path / self.file).exists():
            records = [record for record in self.folder.read(self.file) if record]
            self.folder.rewrite(self.file, records)  # without a line that a crash cut off
            for record in records:
                self._known[record["task"]] = [KeptEpisode(**one) for one in record["episodes"]]

    def side_by_side(self, wanted: int, missing: int) -> int:
        """Return how many tasks of one episode to play side by side."""
        if not self.model.hosted:
            return min(WAVE, wanted)
        return max(min(WAVE, wanted), min(LARGE_WAVE, missing))

    async def take(self, count: int) -> list[list[KeptEpisode]]:
        """Return the episodes of the next tasks. Raise RunError if the budget has no room."""
        tasks = self.stream.take(count)
        new = [task for task in tasks if task.number not in self._known]
        used = self.folder.journal.used(self.stage)
        if new and self.budget is not None and not used.fits(self.budget, self._last):
            raise RunError(
                f"the budget of `{self.stage}` has no room for more samples; {len(self._known):,} "
                "tasks are played",
                "raise it, ask for fewer, or keep more of them",
            )
        await all_of(self._play(task) for task in new)
        if not self.model.hosted:
            self._keep([task.number for task in new])
        if new:
            self._last = self.folder.journal.used(self.stage).less(used)
        return [self._known[task.number] for task in tasks]

    async def _play(self, task: Task) -> None:
        kept = list[KeptEpisode]()
        for rollout in await self.play(task):
            turns = rollout.turns
            shown = [turn.seen_as(self.view) for turn in turns] if self.view else turns
            kept.append(KeptEpisode.of(rollout, merged_sequences(shown)))
        self._known[task.number] = kept
        if self.model.hosted:
            self._keep([task.number])

    def _keep(self, numbers: Sequence[int]) -> None:
        """Journal the usage of tasks, then write the tasks: after a crash in between they are
        played and paid for again, and both are counted."""
        if self.meter is None:
            return
        self.meter.write()
        records = []
        for number in numbers:
            episodes = [asdict(one, recurse=False) for one in self._known[number]]
            records.append({"task": number, "episodes": episodes})
        self.folder.append(self.file, records)


def model_player(
    client: SamplingClient,
    rollouts: RolloutsPlan,
    context: int | None,
    meter: Meter,
    sampling: SamplingPlan = DEFAULT_SAMPLING,
    topk: int = 0,
) -> Play:
    """Return a function that plays tasks with a model, charged before the first step."""
    sampling = evolve(sampling, max_tokens=rollouts.max_tokens, temperature=rollouts.temperature)
    usage = meter.running[PROBES]
    player = Player(client, sampling, context, DEFAULT_FAILURE, usage, topk=topk)
    return partial(play_task, player)


@frozen
class SampleSelection:
    """Chooses among the episodes of a task as a plan says, so many of one task at most."""

    plan: Samples
    _kept: Counter[str] = field(factory=Counter, init=False)
    _choose: ChoiceFunction | None = field(init=False)

    @_choose.default
    def _load(self) -> ChoiceFunction | None:
        code = next((code for _, code in functions_of({"data": self.plan})), None)
        return None if code is None else ChoiceFunction(code)

    def __call__(self, group: Sequence[KeptEpisode]) -> list[KeptEpisode]:
        keep, most = self.plan.keep, self.plan.per_task
        good = [one for one in group if one.sequences]
        if keep.kind == "solved":
            good = [one for one in good if one.solved]
        elif keep.kind == "at_least":
            least = keep.reward
            assert least is not None
            good = [one for one in good if one.reward >= least]
        elif keep.kind == "best" and good:
            good = [max(good, key=lambda one: one.reward)]  # the first of several
        elif self._choose is not None and good:
            good = [good[at] for at in self._choose([one.played() for one in good])]
        if most is not None:
            good = good[: max(most - max((self._kept[one.digest] for one in good), default=0), 0)]
        self._kept.update(one.digest for one in good)
        return good


@asynccontextmanager
async def opened_tasks(
    setup: Setup,
    plan: EnvPlan,
    tokenizer: Any,
    renderer: str,
    account: Meter,
    names: tuple[str, ...],
    size: int | None = None,
    views: Mapping[str, ViewChange] = MappingProxyType({}),
) -> AsyncIterator[TaskStream]:
    """Open the environment of a stage's data for the tasks of a stream with these ``names``. At the
    end it is closed, and the usage of ``account`` is journalled. Raise RunError if it cannot be
    made."""
    responders = setup.auxiliary.responders(setup.meter)
    envs = build_envs([plan], tokenizer, renderer, responders, lambda _: views)
    try:
        yield TaskStream(envs, new_cursor([plan.name]), setup.seed, names, size=size)
    finally:
        account.write()
        await close_envs(envs.values())


async def samples(setup: Setup, stage: Training, plan: Samples) -> list[dict[str, Any]]:
    """Return the episodes that another model plays for a stage, in the order of their tasks, as
    sequences in the stage's own tokens.

    Raise RunError if none is kept, or if top-k tokens are to be learnt that are not the stage's.
    """
    data, count, model = plan.env, plan.count, plan.model.model
    client = await setup.auxiliary.client(plan.model)
    theirs = tokenizer = setup.tokenizer
    if model.base != stage.model.base:
        theirs = await in_thread(client.get_tokenizer)
    same = model.renderer == stage.model.renderer and (
        theirs is tokenizer or theirs.get_vocab() == tokenizer.get_vocab()
    )
    if plan.top_k is not None and not same:
        raise RunError(
            f"`{model.name}` ({model.base}) has other tokens than {stage.model.base}, or writes "
            "chats in another way, so their shares cannot be learnt",
            "leave `top_k` out, or take a player of the same family of models",
        )
    topk = min(plan.top_k or 0, len(theirs))
    shown = ViewChange(
        system=None if plan.without is None else "",
        reader=None if same else (tokenizer, stage.model.renderer),
    )
    views = {} if shown == AS_PLAYED else {_STUDENT: shown}
    folder, account = setup.folder, Meter(setup.folder.journal, stage.name, model)
    play = model_player(client, data.rollouts, model.context, account, plan.sampling, topk)
    view, most, names = _STUDENT if views else "", plan.tries * count, ("samples", stage.name)
    async with opened_tasks(
        setup, data, theirs, model.renderer, account, names, views=views
    ) as stream:
        sampler = EpisodeSampler(
            folder, stage.name, stream, model, play, account, view, stage.budget
        )
        good, played = await collect(
            sampler, count, most, SampleSelection(plan), setup.observer.progress, plan.kept_of_task
        )
    player = plan.model.after or model.name
    what = f"{len(good):,} of {played:,} episodes of `{data.name}` that `{player}` played"
    if not good:
        raise RunError(
            f"none of {played:,} episodes of `{data.name}` that `{player}` played is kept",
            "keep others, give it more `tries`, or take a model that does better",
        )
    if len(good) < count:
        setup.observer.note(
            f"{stage.name}: only {what} are kept, and {count:,} are wanted: trains on those"
        )
    else:
        setup.observer.note(f"{stage.name}: kept {what}")
    return [one.example() for one in good]


async def collect(
    sampler: EpisodeSampler,
    wanted: int,
    most: int,
    chosen: Callable[[Sequence[KeptEpisode]], Sequence[KeptEpisode]],
    on_progress: Callable[[int, int], None],
    per_task: int = 1,
) -> tuple[list[KeptEpisode], int]:
    """Play tasks until ``wanted`` episodes are ``chosen``, at most ``per_task`` of a task, or
    ``most`` are played; return the chosen ones in the order of their tasks, and the number of
    those played."""
    good, played = list[KeptEpisode](), 0
    while len(good) < wanted and played < most:
        count = sampler.side_by_side(wanted, wanted - len(good))
        for group in await sampler.take(ceil(count / per_task)):
            played += len(group)
            good += chosen(group)
        on_progress(min(len(good), wanted), wanted)
    return good[:wanted], played


async def demonstrations(
    setup: Setup, stage: Training, data: Demonstrations
) -> list[dict[str, Any]]:
    """Return the demonstrations of a stage in the order of their tasks, played by the model that it
    begins with, or by the environment's oracle. Raise RunError if too few episodes reach the reward
    of the plan."""
    model, least, plan, count = stage.model, data.min_reward, data.env, data.count
    folder, tokenizer, meter = setup.folder, setup.tokenizer, setup.meter
    names = ("demonstrations", stage.name)
    async with opened_tasks(setup, plan, tokenizer, model.renderer, meter, names) as stream:
        if data.policy == "model":
            client = (await setup.weights.snapshot(0)).client
            play = model_player(client, plan.rollouts, model.context, meter)
        else:
            oracle = find_oracle(plan)
            assert oracle is not None, "the rules of the checker ensure it"
            play = OraclePlayer(oracle, tokenizer).play
        paid = meter if data.policy == "model" else None
        good, played = await collect(
            EpisodeSampler(folder, stage.name, stream, model, play, paid),
            count,
            MOST_TRIES * count,
            lambda group: [one for one in group if one.sequences and one.reward >= least],
            setup.observer.progress,
        )
    if len(good) < count:
        raise RunError(
            f"only {len(good)} of {played} episodes of `{plan.name}` reached the reward of "
            f"{least:g} that demonstrations need; {count} are wanted",
            "lower `min_reward` or `n`",
        )
    return [one.example() for one in good]


@define
class OraclePlayer:
    """Plays tasks with the replies of an oracle, in the tokens that the model would sample."""

    oracle: Oracle
    tokenizer: Any

    async def play(self, task: Task) -> list[Rollout]:
        """Return the one episode of a task."""
        (episode,) = await task.env.source.open(task.key, [0])
        try:
            turns = await self._turns(task.env, episode)
        finally:
            await close_all([episode])
        plan = task.env.plan
        rollout = Rollout(plan.name, task.number, 0, "", tuple(turns), "done", ())
        return shaped_in_group(plan.reward, [credited(rollout, plan.reward)])

    async def _turns(self, env: PlayableEnv, episode: AsyncEpisode) -> list[Turn]:
        history, seen = env.new_history(), episode.first
        texts, turns = list[str](), list[Turn]()
        while not seen.done:
            texts.append(seen.text)
            prompt, reply = history.observe(seen), self.oracle(texts)
            tokens = encoded_reply(reply, history, self.tokenizer)
            action = history.reply(tokens)
            after = await episode.play(action)
            zeros, chunks = [0.0] * len(tokens), chunks_of(history)
            turn = Turn(
                prompt, tokens, zeros, seen.text, action.text, after.reward, "stop", chunks=chunks
            )
            turns.append(turn)
            seen = after
        return turns


async def preferred(setup: Setup, stage: Training, data: PreferredPairs) -> list[dict[str, Any]]:
    """Return pairs of the best and the worst of several replies to a task as records of the run
    folder, in the order of their tasks. Raise RunError if too few tasks have replies that differ.
    """
    part = part_of(stage, data)
    folder, tokenizer, renderer = setup.folder, setup.tokenizer, stage.model.renderer
    name, rollouts, model = data.env.name, data.env.rollouts, data.model.model
    account = Meter(folder.journal, stage.name, model)
    names, whose = ("preferred", stage.name, *([part] if part else [])), f"{stage.name}{part}"
    async with opened_tasks(
        setup, data.env, tokenizer, renderer, account, names, rollouts.group
    ) as stream:
        client = await setup.auxiliary.client(data.model)
        play = model_player(client, rollouts, model.context, account)
        sampler = EpisodeSampler(folder, whose, stream, model, play, account)
        most = MOST_TRIES * data.count * rollouts.group
        found, played = await collect(
            sampler, 2 * data.count, most, best_and_worst, setup.observer.progress
        )
    tasks = played // rollouts.group
    if len(found) < 2 * data.count:
        raise RunError(
            f"only {len(found) // 2} of {tasks:,} tasks of `{name}` had replies whose rewards "
            f"differ; {data.count} pairs are wanted",
            "lower `n`, draw more `samples` of each task, or take tasks that are sometimes solved",
        )
    pairs = list(zip(found[::2], found[1::2], strict=True))
    if ties := tasks - len(pairs):
        setup.observer.note(f"{whose}: {ties:,} of {tasks:,} tasks are left out, most as ties")
    return [_record(better, worse, tokenizer) for better, worse in pairs]


def best_and_worst(group: Sequence[KeptEpisode]) -> Sequence[KeptEpisode]:
    """Return the episodes with the highest and the lowest reward; none if all are equal."""
    usable = [one for one in group if one.sequences]
    if not usable:
        return []
    better = max(usable, key=lambda one: one.reward)
    worse = min(usable, key=lambda one: one.reward)
    return [better, worse] if better.reward > worse.reward else []


def _record(better: KeptEpisode, worse: KeptEpisode, tokenizer: Any) -> dict[str, Any]:
    first = better.sequences[0]
    pairs = zip(first["tokens"], first["turns"], strict=True)
    prompt = [token for token, turn in pairs if turn < 0 and token >= 0]
    return {
        "place": f"{better.env} task {better.task}",
        CHOSEN: list(better.sequences),
        REJECTED: list(worse.sequences),
        RATINGS: {
            "chosen_rating": better.reward,
            "rejected_rating": worse.reward,
            "rating_margin": better.reward - worse.reward,
        },
        "shown": {
            "prompt": tokenizer.decode(prompt),
            CHOSEN: "\n".join(better.actions),
            REJECTED: "\n".join(worse.actions),
        },
    }
