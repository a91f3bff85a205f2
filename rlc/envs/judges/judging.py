"""Judges of episodes: each alone at its end, or those of a group against each other.

Equal replies are compared once, and pairs in both orders, whoever compares. A model that judges by
a rubric is asked again where its answer is no verdict.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import combinations, permutations
from random import Random
from typing import Any, TypeVar

from attrs import define, evolve, field, frozen

from rlc.catalog import JUDGE_PROMPT
from rlc.chat import Action, EnvError, Observation, Verdict, text_of
from rlc.data import (
    Code,
    DataRow,
    RewardError,
    Rubric,
    as_number,
    at_place,
    explained,
    judge_question,
    load_attribute,
    read_better,
    read_ranking,
    read_rubric,
    read_scores,
    read_template,
    reason_of,
    require_fits,
    rubric_text,
    shortened,
    signature_of,
    untagged,
)
from rlc.envs.base import (
    AgentEndpoint,
    AsyncEpisode,
    AsyncSource,
    JoiningEpisode,
    RunningEpisode,
    TaskKey,
)
from rlc.envs.deadlines import Deadline, all_of
from rlc.envs.responders import ModelRequest, Responder, Responders
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan import ComparerPlan, EnvPlan, JudgePlan, JudgingPlan, RewardModelPlan, Sampling

FIRST, TIE, SECOND = 1.0, 0.5, 0.0  # which of two is better
AGAIN = 0.7  # the least temperature of another attempt: at 0 the answer would be the same
_OUTCOMES = {1.0: "won", 0.0: "lost"}

Row = Mapping[str, Any]
RowOfTask = Callable[[TaskKey], Row | None]
Scores = list[tuple[float, str]]  # of each reply a score from 0 to 1, and why
Exchange = tuple[str, str]  # an observation, and the reply to it
_T = TypeVar("_T")


@frozen
class ComparisonVerdict:
    """A verdict, and its parts of the reward by name: weight and value."""

    verdict: Verdict
    parts: Mapping[str, tuple[float, float]]

    @property
    def reward(self) -> float:
        return sum(weight * value for weight, value in self.parts.values())


async def compared(
    judge: JudgePlan | ComparerPlan,
    replies: Sequence[str],
    order: Random,
    by: Callable[[list[str]], Awaitable[Scores]],
) -> list[ComparisonVerdict]:
    """Compare replies ``by`` what scores different ones. Equal replies are shown once, and share
    their score; ``order`` draws the order in which they are shown."""
    different = list(dict.fromkeys(replies))
    order.shuffle(different)
    alone = len(different) == 1
    found = [(TIE, "all replies are the same")] if alone else await by(different)
    scores = dict(zip(different, found, strict=True))
    return [
        ComparisonVerdict(Verdict(judge.name, score, reason), {judge.name: (judge.weight, score)})
        for score, reason in map(scores.__getitem__, replies)
    ]


async def tournament(
    count: int, first_is_better: Callable[[int, int], Coroutine[Any, Any, tuple[float, str]]]
) -> Scores:
    """Let each pair of ``count`` meet in both orders. The winner of both has won; all else is a
    tie. Return the share of the others that each has beaten, a tie counting half."""
    orders = list(permutations(range(count), 2))
    verdicts = await all_of(first_is_better(*pair) for pair in orders)
    of = dict(zip(orders, verdicts, strict=True))
    wins = [0.0] * count
    reasons: list[list[str]] = [[] for _ in range(count)]
    for one, other in combinations(range(count), 2):
        (there, why), (back, again) = of[one, other], of[other, one]
        won = there if there + back == 1.0 and there != TIE else TIE
        said = f": {why} | {again}" if why or again else ""
        for player, share in ((one, won), (other, 1.0 - won)):
            wins[player] += share
            reasons[player].append(f"{_OUTCOMES.get(share, 'tie')}{said}")
    others = count - 1
    return [
        (won / others, shortened(f"{won:g} of {others} pairs won\n" + "\n".join(each)))
        for won, each in zip(wins, reasons, strict=True)
    ]


@define(eq=False)
class OwnComparer:
    """A function of the user's own that says which of two replies is better: a number above 0 for
    the first, below 0 for the second, 0 for a tie, or whether it is the first. It may be ``async``;
    others are called in threads, for up to ``seconds``. Raise DataError if it is not found, or does
    not take two replies and a row."""

    plan: ComparerPlan
    seconds: float | None
    _function: Any = field(init=False)
    _threads: ThreadWorkers = field(factory=ThreadWorkers, init=False)

    def __attrs_post_init__(self) -> None:
        target = self.plan.function
        self._function = load_attribute(target)
        require_fits(Code(target, "comparison"), signature_of(self._function))

    async def compare(
        self, _task: str, replies: Sequence[str], row: Row | None, order: Random
    ) -> list[ComparisonVerdict]:
        async def by(different: list[str]) -> Scores:
            return await tournament(
                len(different),
                lambda one, other: self._better(different[one], different[other], row or {}),
            )

        return await compared(self.plan, replies, order, by)

    async def _better(self, one: str, other: str, row: Row) -> tuple[float, str]:
        target, arguments = self.plan.function, (one, other, dict(row))
        called = type(self._function).__call__  # of an object that is called
        async with Deadline(self.seconds, f"`{target}`"):
            try:
                if any(map(inspect.iscoroutinefunction, (self._function, called))):
                    said = await self._function(*arguments)
                else:
                    said = await self._threads.call(self._function, *arguments)
            except (Exception, SystemExit) as error:
                raise RewardError(f"`{target}` raised {explained(error)}") from error
        number = as_number(said)
        if number is None or number != number:
            what = "None: is a `return` missing?" if said is None else repr(said)[:60]
            raise RewardError(
                f"`{target}` returned {what}",
                "a number above 0 if the first reply is better, below 0 if the second is, else 0",
            )
        if isinstance(said, bool):
            return (FIRST if said else SECOND), ""
        return (FIRST if number > 0 else SECOND if number < 0 else TIE), ""


class JudgeError(EnvError):
    """A judge whose answers have no verdict."""

    cause = "judge"


@define(eq=False)
class Judge:
    """One judge of a plan. Raise DataError if its rubric or its template cannot be used."""

    plan: JudgePlan
    responders: Responders
    by: str = "score"
    rubric: Rubric = field(init=False)
    _question: Callable[..., str] | None = field(init=False)
    _responder: Responder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.rubric = read_rubric(self.plan.rubric)
        template = self.plan.prompt
        self._question = read_template(template, JUDGE_PROMPT) if template else None
        self._responder = self.responders(
            self.plan.model, most=self.plan.concurrency, timeout=self.plan.timeout
        )

    def rubric_of(self, row: Row | None) -> Rubric:
        """Return the rubric for a row. Raise DataError if the row lacks what that needs."""
        return self.rubric.of_row(row, self.plan.criteria)

    async def score(self, task: str, reply: str, row: Row | None) -> ComparisonVerdict:
        rubric = self.rubric_of(row)
        plan, criteria = self.plan, rubric.criteria
        if self._question is not None:
            asked = self._question(
                task=untagged(task), reply=untagged(reply), rubric=rubric_text(rubric)
            )
        else:
            asked = judge_question(plan, "score", task, [reply], rubric)
        names = [one.name for one in criteria]
        read = partial(read_scores, names=names, low=plan.low, high=plan.high)
        scores, reason = await self._verdict(
            asked, read, lambda draw: {name: draw.random() for name in names or ("",)}
        )
        if not criteria:
            parts = {plan.name: (plan.weight, scores[""])}
            return ComparisonVerdict(Verdict(plan.name, scores[""], reason), parts)
        total = sum(one.weight for one in criteria)
        score = sum(one.weight * scores[one.name] for one in criteria) / total
        each = ", ".join(f"{one.name} {scores[one.name]:.3g}" for one in criteria)
        parts = {
            f"{plan.name}/{one.name}": (plan.weight * one.weight / total, scores[one.name])
            for one in criteria
        }
        return ComparisonVerdict(Verdict(plan.name, score, f"{reason}\n({each})".strip()), parts)

    async def compare(
        self, task: str, replies: Sequence[str], row: Row | None, order: Random
    ) -> list[ComparisonVerdict]:
        rubric = self.rubric_of(row)
        judged = self._ranked if self.by == "ranking" else self._paired
        return await compared(self.plan, replies, order, lambda shown: judged(task, shown, rubric))

    async def _ranked(self, task: str, replies: Sequence[str], rubric: Rubric) -> Scores:
        count = len(replies)
        scores, reason = await self._verdict(
            judge_question(self.plan, "ranking", task, replies, rubric),
            partial(read_ranking, count=count),
            lambda draw: [draw.random() for _ in range(count)],
        )
        said = [
            f"reply {number} of {count} as they were shown: {reason}"
            for number in range(1, count + 1)
        ]
        return list(zip(scores, said, strict=True))

    async def _paired(self, task: str, replies: Sequence[str], rubric: Rubric) -> Scores:
        async def first_is_better(one: int, other: int) -> tuple[float, str]:
            pair = [replies[one], replies[other]]
            asked = judge_question(self.plan, "pairwise", task, pair, rubric)
            return await self._verdict(
                asked, read_better, lambda draw: draw.choice([1.0, 0.5, 0.0])
            )

        return await tournament(len(replies), first_is_better)

    async def _verdict(
        self, question: str, read: Callable[[str], _T | None], stand_in: Callable[[Random], _T]
    ) -> tuple[_T, str]:
        """Return the first verdict of several attempts, and why. Raise JudgeError if there is
        none; in a rehearsal, make a ``stand_in``."""
        messages = [{"role": "user", "content": question}]
        digest = blake2b(json.dumps(messages).encode(), digest_size=16).hexdigest()
        answer = ""
        for attempt in range(self.plan.attempts):
            warm = self.plan.temperature if attempt == 0 else max(self.plan.temperature, AGAIN)
            key = ("judge", digest, attempt)
            request = ModelRequest(messages, Sampling(self.plan.max_tokens, warm), key)
            answer = (await self._responder.reply(request)).text
            if (found := read(answer)) is not None:
                return found, reason_of(answer)
        if self.plan.stand_in:
            return stand_in(
                Random(digest)
            ), "sampled at random: the model of a rehearsal is no judge"
        end = " ".join(answer.split())[-120:]
        raise JudgeError(
            f"the judge `{self.plan.name}` gave no verdict in {self.plan.attempts} attempts; its "
            f"last answer ends with {end!r}"
        )


@define(eq=False)
class JudgedReward:
    """A plan's ``judged()`` or ``compared()``; ``row`` finds the row of a task. The ``rewards`` are
    those of reward models, which read the tokens of episodes: the runtime computes them."""

    plan: JudgingPlan
    judges: Sequence[Judge | OwnComparer]
    row: RowOfTask
    rewards: Sequence[RewardModelPlan] = ()

    def require_rows(self, rows: Sequence[DataRow]) -> None:
        """Raise DataError for a row that a judge could not be asked about."""
        for judge in self.judges:
            if isinstance(judge, Judge):
                for row in rows:
                    with at_place(row.place):
                        judge.rubric_of(row.fields)

    async def score(self, task: TaskKey, exchanges: Sequence[Exchange]) -> list[ComparisonVerdict]:
        asked, reply = self._parts(exchanges)
        row = self.row(task)
        asking = [judge for judge in self.judges if isinstance(judge, Judge)]
        return [await judge.score(asked, reply, row) for judge in asking]

    async def compare(
        self, task: TaskKey, episodes: Sequence[Sequence[Exchange]], order: Random
    ) -> list[list[ComparisonVerdict]]:
        """Judge a group: for each episode, by each judge. Raise EnvError without two episodes."""
        if len(episodes) < 2:
            raise EnvError("there is no other episode in the group to compare with")
        (asked, _), *_ = parts = [self._parts(exchanges) for exchanges in episodes]
        row, replies = self.row(task), [reply for _, reply in parts]
        if not self.plan.whole and any(other != asked for other, _ in parts):
            asked = episodes[0][0][0]  # they went different ways, each of which is shown
            replies = [transcript(exchanges) for exchanges in episodes]
        found = [await judge.compare(asked, replies, row, order) for judge in self.judges]
        return [[of_judge[at] for of_judge in found] for at in range(len(episodes))]

    def _parts(self, exchanges: Sequence[Exchange]) -> tuple[str, str]:
        *before, (said, reply) = exchanges
        if self.plan.whole and before:
            return exchanges[0][0], transcript(exchanges)
        return f"{transcript(before)}\n\n{said}".strip() if before else said, reply


def transcript(exchanges: Sequence[Exchange]) -> str:
    return "\n\n".join(f"User: {said}\n\nAssistant: {reply}" for said, reply in exchanges)


def make_judgings(
    plan: EnvPlan, row: RowOfTask, responders: Responders
) -> tuple[tuple[JudgedReward, ...], tuple[JudgedReward, ...]]:
    """Return the judgings of each episode alone, as it ends, and those that wait for its group.
    Raise DataError if a rubric or template cannot be used."""
    alone, together = list[JudgedReward](), list[JudgedReward]()
    for one in plan.judging:
        judges: list[Judge | OwnComparer] = []
        for judge in one.judges:
            if isinstance(judge, JudgePlan):
                judges.append(Judge(judge, responders, one.by))
            elif isinstance(judge, ComparerPlan):
                judges.append(OwnComparer(judge, plan.rollouts.step_timeout))
        rewards = [judge for judge in one.judges if isinstance(judge, RewardModelPlan)]
        if one.by != "score":
            together.append(JudgedReward(one, judges, row, rewards))
            continue
        if judges:
            alone.append(JudgedReward(one, judges, row))
        if rewards:
            together.append(JudgedReward(one, (), row, rewards))
    return tuple(alone), tuple(together)


def rewarded(seen: Observation, judged: Sequence[ComparisonVerdict]) -> Observation:
    whole = {"": (1.0, seen.reward)} if seen.reward else {}
    parts = {name: part for one in judged for name, part in one.parts.items()}
    values = {name: value for name, (_, value) in parts.items()}
    scores = {one.verdict.judge: one.verdict.score for one in judged}
    return evolve(
        seen,
        reward=(seen.reward or 0.0) + sum(one.reward for one in judged),
        metrics={**seen.metrics, **values, **scores},
        components={**(seen.components or whole), **parts},
        verdicts=(*seen.verdicts, *(one.verdict for one in judged)),
    )


@frozen
class JudgedSource:
    """An :class:`rlc.envs.base.AsyncSource` whose episodes are judged as they end, each alone."""

    others: AsyncSource
    judgings: Sequence[JudgedReward]

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        opened = await self.others.open(task, members)
        if any(isinstance(episode, JoiningEpisode) for episode in opened):
            raise EnvError("who plays with others of the group cannot be judged alone")
        judged = list[Any]()
        for episode in opened:
            kind: Any = _JudgedAgent if isinstance(episode, RunningEpisode) else _JudgedEpisode
            judged.append(kind(episode, task, self.judgings))
        return judged

    async def close(self) -> None:
        await self.others.close()


@define(eq=False)
class _JudgedAgent(RunningEpisode):
    """An agent is judged by its last conversation."""

    episode: RunningEpisode
    task: TaskKey
    judgings: Sequence[JudgedReward]
    first: Observation = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.first = self.episode.first

    async def run(self, endpoint: AgentEndpoint) -> Observation:
        seen, exchanges, said = await self.episode.run(endpoint), list[Exchange](), list[str]()
        for message in endpoint.transcript():
            if message["role"] == "assistant":
                exchanges.append(("\n\n".join(said), text_of(message)))
                said = []
            elif message["role"] != "system":
                said.append(text_of(message))
        for judging in self.judgings if exchanges else ():
            seen = rewarded(seen, await judging.score(self.task, exchanges))
        return seen

    async def close(self) -> None:
        await self.episode.close()


@define(eq=False)
class _JudgedEpisode:
    """An episode that is cut off before its end is not judged."""

    episode: AsyncEpisode
    task: TaskKey
    judgings: Sequence[JudgedReward]
    _said: str = field(init=False)
    _exchanges: list[Exchange] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._said = self.episode.first.text

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        seen = await self.episode.play(action)
        self._exchanges.append((self._said, action.text))
        self._said = seen.text
        if not seen.done:
            return seen
        for judging in self.judgings:
            seen = rewarded(seen, await judging.score(self.task, self._exchanges))
        return seen

    async def close(self) -> None:
        await self.episode.close()
