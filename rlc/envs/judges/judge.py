"""Judges: they ask a model by a rubric, and ask again where the answer is no verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from itertools import combinations, permutations
from random import Random
from typing import Any, TypeVar

from attrs import define, field, frozen

from rlc.catalog.builtins.graders import JUDGE_PROMPT
from rlc.data.errors import DataError
from rlc.data.rubrics import Criterion, Rubric, read_rubric, row_criteria
from rlc.data.templates import read_template
from rlc.envs.base import EnvError, Verdict
from rlc.envs.concurrency import all_of
from rlc.envs.judges import questions
from rlc.envs.responders import Question, Responder, Responders
from rlc.plan.environments import JudgePlan

T = TypeVar("T")
AGAIN = 0.7  # the least temperature of another attempt: at 0 the answer would be the same
_SHOWN = 120
_SHARES = {1.0: "won", 0.0: "lost"}


class JudgeError(EnvError):
    """A judge that has not answered in its form."""

    cause = "judge"


@frozen
class Judged:
    """A verdict, and the parts of the reward that come of it, by name: weight and value."""

    verdict: Verdict
    parts: Mapping[str, tuple[float, float]]

    @property
    def reward(self) -> float:
        return sum(weight * value for weight, value in self.parts.values())


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

    def criteria(self, row: Mapping[str, Any] | None) -> tuple[Criterion, ...]:
        """The criteria of the rubric, and those of a row. Raise DataError if it has none that can
        be read."""
        if self.plan.criteria is None:
            return self.rubric.criteria
        if row is None:
            raise DataError(f"`{self.plan.name}` takes criteria from rows, and there are none")
        return (*self.rubric.criteria, *row_criteria(row, self.plan.criteria))

    async def score(self, task: str, reply: str, criteria: Sequence[Criterion]) -> Judged:
        """Judge a reply alone."""
        plan, by = self.plan, questions.described(self.rubric, criteria)
        if self._question is not None:
            asked = self._question(
                task=questions.shown(task), reply=questions.shown(reply), rubric=by
            )
        else:
            asked = questions.score_question(task, reply, by, criteria, plan.low, plan.high)
        names = [one.name for one in criteria]
        read = partial(questions.read_scores, names=names, low=plan.low, high=plan.high)
        scores, reason = await self._verdict(
            asked, read, lambda draw: {name: draw.random() for name in names or ("",)}
        )
        if not criteria:
            score = scores[""]
            return Judged(Verdict(plan.name, score, reason), {plan.name: (plan.weight, score)})
        total = sum(one.weight for one in criteria)
        score = sum(one.weight * scores[one.name] for one in criteria) / total
        each = ", ".join(f"{one.name} {scores[one.name]:.3g}" for one in criteria)
        parts = {
            f"{plan.name}/{one.name}": (plan.weight * one.weight / total, scores[one.name])
            for one in criteria
        }
        return Judged(Verdict(plan.name, score, f"{reason}\n({each})".strip()), parts)

    async def compare(
        self, task: str, replies: Sequence[str], criteria: Sequence[Criterion], order: Random
    ) -> list[Judged]:
        """Judge replies to one task against each other: by one ranking, or in pairs. Equal replies
        are shown once, and share their score; ``order`` decides in which order they are shown."""
        different = list(dict.fromkeys(replies))
        order.shuffle(different)
        by = questions.described(self.rubric, criteria)
        if len(different) == 1:
            found = [(0.5, "all replies are the same")]
        elif self.by == "ranking":
            found = await self._ranked(task, different, by)
        else:
            found = await self._paired(task, different, by)
        scores = dict(zip(different, found, strict=True))
        name, weight = self.plan.name, self.plan.weight
        return [
            Judged(Verdict(name, score, reason), {name: (weight, score)})
            for score, reason in map(scores.__getitem__, replies)
        ]

    async def _ranked(self, task: str, replies: Sequence[str], by: str) -> list[tuple[float, str]]:
        count = len(replies)
        scores, reason = await self._verdict(
            questions.ranking_question(task, replies, by),
            partial(questions.read_ranking, count=count),
            lambda draw: [draw.random() for _ in range(count)],
        )
        said = [
            f"reply {number} of {count} as they were shown: {reason}"
            for number in range(1, count + 1)
        ]
        return list(zip(scores, said, strict=True))

    async def _paired(self, task: str, replies: Sequence[str], by: str) -> list[tuple[float, str]]:
        """A tournament: each pair in both orders. Who wins both has won; all else is a tie."""

        async def first_is_better(one: int, other: int) -> tuple[float, str]:
            asked = questions.pair_question(task, replies[one], replies[other], by)
            return await self._verdict(
                asked, questions.read_better, lambda draw: draw.choice([1.0, 0.5, 0.0])
            )

        orders = list(permutations(range(len(replies)), 2))
        verdicts = await all_of(first_is_better(*pair) for pair in orders)
        of = dict(zip(orders, verdicts, strict=True))
        count, wins = len(replies) - 1, [0.0] * len(replies)
        reasons: list[list[str]] = [[] for _ in replies]
        for one, other in combinations(range(len(replies)), 2):
            (there, why), (back, again) = of[one, other], of[other, one]
            won = there if there + back == 1.0 and there != 0.5 else 0.5
            for player, share in ((one, won), (other, 1.0 - won)):
                wins[player] += share
                reasons[player].append(f"{_SHARES.get(share, 'tie')}: {why} | {again}")
        return [
            (won / count, questions.shortened(f"{won:g} of {count} pairs won\n" + "\n".join(each)))
            for won, each in zip(wins, reasons, strict=True)
        ]

    async def _verdict(
        self, asked: str, read: Callable[[str], T | None], drawn: Callable[[Random], T]
    ) -> tuple[T, str]:
        """Ask until there is a verdict; return it, and the reason. Raise JudgeError if the last
        attempt brings none."""
        messages = [{"role": "user", "content": asked}]
        digest = blake2b(json.dumps(messages).encode(), digest_size=16).hexdigest()
        answer = ""
        for attempt in range(self.plan.attempts):
            warm = self.plan.temperature if attempt == 0 else max(self.plan.temperature, AGAIN)
            key = ("judge", digest, attempt)
            question = Question(messages, self.plan.max_tokens, warm, key)
            answer = (await self._responder.reply(question)).text
            if (found := read(answer)) is not None:
                return found, questions.reason_of(answer)
        if self.plan.stand_in:
            return drawn(Random(digest)), "drawn: the model of a rehearsal is no judge"
        end = " ".join(answer.split())[-_SHOWN:]
        raise JudgeError(
            f"the judge `{self.plan.name}` gave no verdict in {self.plan.attempts} attempts; its "
            f"last answer ends with {end!r}"
        )
