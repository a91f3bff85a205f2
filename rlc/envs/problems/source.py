"""Questions with answers to check: one question, one reply, one reward."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from rlc.data import countdown
from rlc.data.errors import DataError, at_place
from rlc.data.graders import (
    Grader,
    countdown_task,
    is_right,
    require_gradable,
    require_right,
)
from rlc.data.messages import Message
from rlc.data.rows import rows_of
from rlc.data.sets import Listed, Row, problem_set
from rlc.envs.base import Episode, Observation

TRIED = 16  # rows whose own answers are graded first


class ProblemSource:
    """The environment ``problems()``. See :class:`rlc.envs.base.NumberedSource`."""

    def __init__(self, data: str, args: Mapping[str, Any]) -> None:
        """``args`` are those of ``problems()`` except ``data``. Raise DataError for data that
        cannot be read, has no such split, or has a row that cannot be asked or graded, and for a
        grader that calls right answers wrong."""
        self._question, self._answer, self._suffix = (
            args[name] for name in ("question", "answer", "suffix")
        )
        self._format_coef = float(args["format_coef"])
        self._grader = grader = Grader(
            args["grader"], args["answer"], args["pattern"], args["grade_with"]
        )

        def check(row: Row) -> None:
            self._require_fields(self._complete(row))
            require_gradable(grader, row)

        chosen = (args["split"], self._question, args["shuffle"], args["samples"])
        self._problems = problem_set(data, *chosen, check)
        self.count = self._problems.count
        self.few_shot = self._solved(args["few_shot"])
        if isinstance(self._problems, Listed):
            require_right(grader, self._problems.rows[:TRIED], data)

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        """``size`` attempts at problem ``number`` of the order."""
        row = self._complete(self._problems.row(order, number))
        first = Observation(self._prompt(row))
        return [Attempt(first, self._grader, row, self._format_coef) for _ in range(size)]

    def _complete(self, row: Row) -> Row:
        """A row of the public Countdown data has only numbers and a target: ask for them."""
        if self._grader.name != "countdown":
            return row
        numbers, target = countdown_task(row, self._answer)
        asked = {self._question: countdown.question(numbers, target), self._answer: str(target)}
        return {**asked, **row}

    def _prompt(self, row: Row) -> str:
        return f"{row[self._question]}{self._suffix}"

    def _require_fields(self, row: Row) -> None:
        for name in (self._question, self._answer):
            if row.get(name) in (None, ""):
                raise DataError(
                    f"the field `{name}` is empty; there are {', '.join(map(str, row))}"
                )

    def _solved(self, path: str | None) -> tuple[Message, ...]:
        """The problems of the file `few_shot`, asked as the others are, each with its answer."""
        if path is None:
            return ()
        solved = list[Message]()
        for row in rows_of(path):
            with at_place(row.place):
                self._require_fields(row.fields)
                answer = str(row.fields[self._answer])
                if is_right(self._grader, answer, row.fields) is False:
                    raise DataError("its own answer would be graded wrong as a reply")
            solved.append({"role": "user", "content": self._prompt(row.fields)})
            solved.append({"role": "assistant", "content": answer})
        return tuple(solved)


@frozen
class Attempt:
    """One reply to a problem. Its reward is ``format_coef (format − 1) + correct``; ``format`` is
    whether the grader finds an answer."""

    first: Observation
    grader: Callable[[str, Row], float | None]
    row: Row = field(repr=False)
    format_coef: float

    def step(self, action: str) -> Observation:
        grade = self.grader(action, self.row)
        correct, formatted = grade or 0.0, float(grade is not None)
        reward = self.format_coef * (formatted - 1.0) + correct
        return Observation("", reward, True, {"correct": correct, "format": formatted})
