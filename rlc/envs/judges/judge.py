"""Judges: they ask a model by a rubric, and ask again where the answer is no verdict."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from random import Random
from typing import Any, TypeVar

from attrs import define, field

from rlc.catalog import JUDGE_PROMPT
from rlc.chat import EnvError, Verdict
from rlc.data import Rubric, read_rubric, read_template
from rlc.envs.judges import questions
from rlc.envs.judges.comparisons import ComparisonVerdict, compared, tournament
from rlc.envs.responders import ModelRequest, Responder, Responders
from rlc.plan import JudgePlan, Sampling

_T = TypeVar("_T")
AGAIN = 0.7  # the least temperature of another attempt: at 0 the answer would be the same
_SHOWN = 120


class JudgeError(EnvError):
    """A judge that has not answered in its form."""

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

    def rubric_of(self, row: Mapping[str, Any] | None) -> Rubric:
        """What it goes by for a row. Raise DataError if that lacks what the rubric needs."""
        return self.rubric.of_row(row, self.plan.criteria)

    async def score(
        self, task: str, reply: str, row: Mapping[str, Any] | None
    ) -> ComparisonVerdict:
        """Judge a reply alone."""
        rubric = self.rubric_of(row)
        plan, by, criteria = self.plan, questions.described(rubric), rubric.criteria
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
            return ComparisonVerdict(
                Verdict(plan.name, score, reason), {plan.name: (plan.weight, score)}
            )
        total = sum(one.weight for one in criteria)
        score = sum(one.weight * scores[one.name] for one in criteria) / total
        each = ", ".join(f"{one.name} {scores[one.name]:.3g}" for one in criteria)
        parts = {
            f"{plan.name}/{one.name}": (plan.weight * one.weight / total, scores[one.name])
            for one in criteria
        }
        return ComparisonVerdict(Verdict(plan.name, score, f"{reason}\n({each})".strip()), parts)

    async def compare(
        self, task: str, replies: Sequence[str], row: Mapping[str, Any] | None, order: Random
    ) -> list[ComparisonVerdict]:
        """Judge replies to one task against each other: by one ranking, or in pairs."""
        by = questions.described(self.rubric_of(row))
        judged = self._ranked if self.by == "ranking" else self._paired
        return await compared(self.plan, replies, order, lambda shown: judged(task, shown, by))

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
        async def first_is_better(one: int, other: int) -> tuple[float, str]:
            asked = questions.pair_question(task, replies[one], replies[other], by)
            return await self._verdict(
                asked, questions.read_better, lambda draw: draw.choice([1.0, 0.5, 0.0])
            )

        return await tournament(len(replies), first_is_better)

    async def _verdict(
        self, asked: str, read: Callable[[str], _T | None], drawn: Callable[[Random], _T]
    ) -> tuple[_T, str]:
        """Ask until there is a verdict; return it, and the reason. Raise JudgeError if the last
        attempt brings none."""
        messages = [{"role": "user", "content": asked}]
        digest = blake2b(json.dumps(messages).encode(), digest_size=16).hexdigest()
        answer = ""
        for attempt in range(self.plan.attempts):
            warm = self.plan.temperature if attempt == 0 else max(self.plan.temperature, AGAIN)
            key = ("judge", digest, attempt)
            question = ModelRequest(messages, Sampling(self.plan.max_tokens, warm), key)
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
