"""Rows of data as tasks: one prompt, one reply, one reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from rlc.chat import Action, Observation, observation_of, with_instruction
from rlc.data import (
    Chat,
    DataError,
    DataRow,
    ListedProblems,
    Message,
    Reward,
    Row,
    about_row,
    at_place,
    completed,
    joined_steps,
    problem_set,
    read_prompt,
    read_solved,
    require_field,
    rows_of,
)
from rlc.envs.base import AsyncEpisode, AsyncSource, Episode, TaskKey
from rlc.plan import FIELD as SPLIT
from rlc.plan import GraderPlan


class ProblemSource:
    """The environments ``problems()`` and ``rows()``. See :class:`rlc.envs.base.NumberedSource`."""

    def __init__(
        self,
        data: str,
        args: Mapping[str, Any],
        graders: Sequence[GraderPlan],
        begins: Mapping[str, str] | None = None,
        **rules: bool,
    ) -> None:
        """``args`` are those of ``problems()`` except ``data``; ``answer`` is None for rows without
        one. ``begins``: the arguments of `chat()`. ``rules`` as for
        :func:`rlc.data.chats.read_prompt`. Raise DataError for data that cannot be read, has no
        such split, or has a row that cannot be asked or graded, and for a grader that calls right
        answers wrong."""
        self._question, self._answer, self._suffix = (
            args[name] for name in ("question", "answer", "suffix")
        )
        self._id, self._rules, self._begins = args.get("id"), rules, begins or {}
        self._reward = Reward(tuple(graders), self._answer, float(args["format_coef"]))
        self._graders = [grader.grader for grader in graders]

        def check(row: Row) -> None:
            self._prompt(row)
            self._require_answer(row)
            if self._id is not None:
                require_field(row, self._id, "id")
            self._reward.require_gradable(row)

        chosen = (args["split"], self._question, args["shuffle"], args["samples"])
        self._problems = problem_set(data, *chosen, check)
        self.count = self._problems.count
        self.few_shot = self._solved(args["few_shot"])
        if isinstance(self._problems, ListedProblems):
            rows = self._problems.rows
            self._reward.try_on(rows, data, lambda row: self._asked(self._prompt(row.fields)))

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        return [self.attempt(order, number)] * size

    @property
    def rows(self) -> Sequence[DataRow]:
        return self._problems.rows if isinstance(self._problems, ListedProblems) else ()

    def row(self, task: TaskKey) -> Row:
        return self._problems.row(task.order, task.number).fields

    def with_awaited(self, others: AsyncSource) -> AsyncSource:
        """Add the rewards of ``async`` graders to those of ``others``, which workers compute."""
        return _AwaitedSource(others, self.attempt) if self._reward.is_awaited else others

    def attempt(self, order: int, number: int) -> ProblemEpisode:
        row = self._problems.row(order, number)
        row = evolve(row, fields=self._complete(row.fields))
        prompt = self._prompt(row.fields)
        about = about_row(row, self._id, shown=(self._question, "tools", SPLIT))
        first = evolve(observation_of(prompt), about=about, fields=row.fields)
        return ProblemEpisode(first, self._asked(prompt), self._reward, row)

    def _asked(self, prompt: Chat) -> tuple[Message, ...]:
        messages = with_instruction(prompt.messages, self._begins.get("instruction", ""))
        system = self._begins.get("system")
        return ({"role": "system", "content": system}, *messages) if system else (*messages,)

    def _complete(self, row: Row) -> Row:
        return completed(self._graders, row, self._question, self._answer)

    def _prompt(self, row: Row, read: Callable[..., Chat] = read_prompt) -> Chat:
        prompt = read(self._complete(row), self._question, **self._rules)
        return prompt.with_suffix(self._suffix)

    def _require_answer(self, row: Row) -> None:
        if self._answer is not None:
            require_field(self._complete(row), self._answer, "answer")

    def _solved(self, path: str | None) -> tuple[Message, ...]:
        solved = list[Message]()
        for row in rows_of(path) if path else ():
            with at_place(row.place):
                prompt = self._prompt(row.fields, read_solved)
                self._require_answer(row.fields)
                answer = str(row.fields[self._answer])
                if not self._reward.accepts(answer, row.fields):
                    raise DataError("its own answer would be graded wrong as a reply")
            solved += [*prompt.messages, {"role": "assistant", "content": answer}]
        return tuple(solved)


@frozen
class ProblemEpisode:
    """An episode of one reply to a prompt."""

    first: Observation
    prompt: tuple[Message, ...]
    reward: Reward
    row: DataRow = field(repr=False)

    def step(self, action: str) -> Observation:
        graded = self.reward(action, self.row, self.conversation(action))
        ended = Observation("", graded.reward, True, graded.metrics, components=graded.components)
        return evolve(ended, steps=graded.steps)

    async def more(self, action: str, seen: Observation) -> Observation:
        """Add the rewards of ``async`` graders to what :meth:`step` returned."""
        graded = await self.reward.on_loop(action, self.row, self.conversation(action))
        return evolve(
            seen,
            reward=(seen.reward or 0.0) + graded.reward,
            metrics={**seen.metrics, **graded.metrics},
            components={**seen.components, **graded.components},
            steps=joined_steps(seen.steps, graded.steps),
        )

    def conversation(self, reply: str) -> tuple[Mapping[str, Any], ...]:
        return (*self.prompt, {"role": "assistant", "content": reply})


@frozen
class _AwaitedSource:
    """An :class:`rlc.envs.base.AsyncSource` of the same episodes, with awaited rewards."""

    others: AsyncSource
    attempt: Callable[[int, int], ProblemEpisode]

    async def open(self, task: TaskKey, members: Sequence[int]) -> list[AsyncEpisode]:
        attempt = self.attempt(task.order, task.number)
        return [_AwaitedEpisode(e, attempt) for e in await self.others.open(task, members)]

    async def close(self) -> None:
        await self.others.close()


@frozen
class _AwaitedEpisode:
    episode: AsyncEpisode
    attempt: ProblemEpisode

    @property
    def first(self) -> Observation:
        return self.episode.first

    async def play(self, action: Action) -> Observation:
        return await self.attempt.more(action.text, await self.episode.play(action))

    async def close(self) -> None:
        await self.episode.close()
