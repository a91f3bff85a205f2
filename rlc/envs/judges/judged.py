"""Episodes that judges reward: each alone at its end, or those of a group against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any

from attrs import define, evolve, field, frozen

from rlc.chat import Action, EnvError, Observation, text_of
from rlc.data import DataRow, at_place
from rlc.envs.base import (
    AgentEndpoint,
    AsyncEpisode,
    AsyncSource,
    JoiningEpisode,
    RunningEpisode,
    TaskKey,
)
from rlc.envs.judges.comparisons import ComparisonVerdict, OwnComparer
from rlc.envs.judges.judge import Judge
from rlc.envs.responders import Responders
from rlc.plan import ComparerPlan, EnvPlan, JudgePlan, JudgingPlan, RewardModelPlan

Row = Callable[[TaskKey], Mapping[str, Any] | None]
Exchange = tuple[str, str]  # what the environment said, and the reply to it


@define(eq=False)
class JudgedReward:
    """What a plan's ``judged()`` or ``compared()`` does; ``row`` finds the row of a task. The
    ``rewards`` are those of models that read the tokens of episodes, which the runtime has."""

    plan: JudgingPlan
    judges: Sequence[Judge | OwnComparer]
    row: Row
    rewards: Sequence[RewardModelPlan] = ()

    def require_rows(self, rows: Sequence[DataRow]) -> None:
        """Raise DataError for a row that a judge could not be asked about."""
        for judge in self.judges:
            if isinstance(judge, Judge):
                for row in rows:
                    with at_place(row.place):
                        judge.rubric_of(row.fields)

    async def score(self, task: TaskKey, exchanges: Sequence[Exchange]) -> list[ComparisonVerdict]:
        """Judge an episode alone, by each judge."""
        asked, reply = self._parts(exchanges)
        row = self.row(task)
        asking = [judge for judge in self.judges if isinstance(judge, Judge)]
        return [await judge.score(asked, reply, row) for judge in asking]

    async def compare(
        self, task: TaskKey, episodes: Sequence[Sequence[Exchange]], order: Random
    ) -> list[list[ComparisonVerdict]]:
        """Judge the episodes of a group against each other; for each episode, by each judge. Raise
        EnvError if there are not two of them."""
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
        """The task, and what is judged."""
        *before, (said, reply) = exchanges
        if self.plan.whole and before:
            return exchanges[0][0], transcript(exchanges)
        return f"{transcript(before)}\n\n{said}".strip() if before else said, reply


def transcript(exchanges: Sequence[Exchange]) -> str:
    """A conversation as text."""
    return "\n\n".join(f"User: {said}\n\nAssistant: {reply}" for said, reply in exchanges)


def make_judgings(
    plan: EnvPlan, row: Row, responders: Responders
) -> tuple[tuple[JudgedReward, ...], tuple[JudgedReward, ...]]:
    """The judgings of an environment: those of each episode alone, as it ends, and those that wait
    for its group. Raise DataError if a rubric or template cannot be used."""
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
    """The last observation of an episode, with what judges said of it."""
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
        judged: list[Any] = [
            _JudgedAgent(episode, task, self.judgings)
            if isinstance(episode, RunningEpisode)
            else _JudgedEpisode(episode, task, self.judgings)
            for episode in opened
        ]
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
