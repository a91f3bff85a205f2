"""Questions with answers to check: one question, one reply, one reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from rlc.envs.base import EnvError, Episode, Observation
from rlc.envs.problems import countdown
from rlc.envs.problems.data_sets import Listed, ProblemSet, Row, problem_set
from rlc.envs.problems.graders import (
    Grader,
    GraderPlan,
    countdown_task,
    is_right,
    make_grader,
    require_gradable,
    require_right,
)
from rlc.envs.problems.rows import read_rows

TRIED = 16  # rows whose own answers are graded before anything else


class ProblemSource:
    """The environment ``problems()``. See :class:`rlc.envs.base.NumberedSource`."""

    def __init__(self, data: str, args: Mapping[str, Any]) -> None:
        """``args`` are those of ``problems()``, all of them but ``data``. Raises EnvError for data
        that cannot be read, has no such split, or has a row that cannot be asked or graded, and for
        a grader that does not know the right answers when it sees them."""
        self._fields = _Fields(args["question"], args["answer"], args["suffix"])
        self._format_coef = float(args["format_coef"])
        plan = GraderPlan(args["grader"], args["answer"], args["pattern"], args["grade_with"])
        self._grader = make_grader(plan)

        self._is_countdown = plan.name == "countdown"

        def check(row: Row) -> None:
            self._fields.require(self._complete(row))
            require_gradable(plan, row)

        self._problems: ProblemSet = problem_set(
            data, args["split"], args["shuffle"], args["samples"], check
        )
        self.count = self._problems.count
        self.few_shot = self._solved(args["few_shot"])
        if isinstance(self._problems, Listed):
            require_right(plan, self._grader, self._problems.rows[:TRIED], data)

    def numbered(self, order: int, number: int, size: int) -> list[Episode]:
        """``size`` attempts at problem ``number`` of the order."""
        row = self._complete(self._problems.row(order, number))
        first = Observation(self._fields.asked(row))
        return [_Attempt(first, self._grader, row, self._format_coef) for _ in range(size)]

    def _complete(self, row: Row) -> Row:
        return self._fields.completed(row) if self._is_countdown else row

    def _solved(self, path: str | None) -> tuple[tuple[str, str], ...]:
        """Question and answer of the problems of the file `few_shot`, asked as the others are."""
        if path is None:
            return ()
        rows = read_rows(path)
        answer = self._fields.answer
        for number, row in enumerate(rows, start=1):
            try:
                self._fields.require(row)
                if is_right(self._grader, str(row[answer]), row) is False:
                    raise EnvError("its own answer would be graded wrong as a reply")
            except EnvError as error:
                raise EnvError(f"row {number} of {path}: {error}") from error
        return tuple((self._fields.asked(row), str(row[answer])) for row in rows)


@frozen
class _Fields:
    """Where the rows hold a question and its answer, and what is added to the question."""

    question: str
    answer: str
    suffix: str

    def asked(self, row: Row) -> str:
        return f"{row[self.question]}{self.suffix}"

    def require(self, row: Row) -> None:
        for name in (self.question, self.answer):
            if row.get(name) in (None, ""):
                raise EnvError(f"the field `{name}` is empty; there are {', '.join(map(str, row))}")

    def completed(self, row: Row) -> Row:
        """A row of the public Countdown data has only numbers and a target: ask for them."""
        numbers, target = countdown_task(row, self.answer)
        made = {self.question: countdown.question(numbers, target), self.answer: str(target)}
        return {**made, **row}


@frozen
class _Attempt:
    first: Observation
    grader: Grader
    row: Row = field(repr=False)
    format_coef: float

    def step(self, action: str) -> Observation:
        grade = self.grader(action, self.row)
        metrics = {"correct": grade.correct, "format": float(grade.formatted)}
        return Observation("", grade.reward(self.format_coef), True, metrics)
