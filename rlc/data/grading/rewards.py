"""Rewards: what graders and functions of the user's own say of a reply, added up by weight.

A function of the user's own takes two arguments, the reply and the row. If the first is called
``messages`` or ``conversation``, it is given the whole conversation, whose last message is the
reply. It returns a number, or several by name, whose weighted sum counts. It may be ``async``.
Code of the user's own is tried in a process of its own, so that `rlc check` goes on regardless.
"""

from __future__ import annotations

import inspect
import json
import math
import os
import pickle
import subprocess
import sys
import sysconfig
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from rlc.data.about import ID
from rlc.data.calls import Code
from rlc.data.code import explained, load_attribute, require_fits, search_beside, signature_of
from rlc.data.errors import DataError, FilePlace, at_place
from rlc.data.grading.graders import TRIED, Grader, is_right, require_gradable, require_right
from rlc.data.grading.panel import (
    WITHOUT_ANSWER,
    PanelTask,
    UnearnedReply,
    examined,
    may_end_process,
    panel_result,
)
from rlc.data.grading.steps import STEPS, Steps, as_number, joined_steps, read_steps
from rlc.data.rows import DataRow, first_of
from rlc.plan import GraderPlan
from rlc.records import asdict, evolve, field, frozen

if TYPE_CHECKING:
    from rlc.data.functions.samples import SampleBatch

Messages = Sequence[Mapping[str, Any]]
_T = TypeVar("_T")

OWN = "grade_with"
CONVERSATION = ("messages", "conversation")  # names of a first parameter that is given all of it
TRIED_OWN = 4  # first rows that functions of the user's own are called with before a run
# What the field of a right answer is usually called, most often first.
ANSWER_FIELDS = ("answer", "solution", "target", "output", "label")
_TRIAL_SECONDS = 120.0
_UNEARNED_SECONDS = 3.0  # for all such replies: of what is slow, or paid, few are tried
_PATIENCE = 180.0  # within which code must have been imported and tried
_SHOWN = 60  # characters of a value in a message


class RewardError(DataError):
    """A function of the user's own that failed, or returned something that is not a reward."""

    cause = "reward"


class MisnamedError(RewardError):
    """A function whose numbers have other ``names`` than its weights have."""

    def __init__(self, what: str, place: FilePlace | None, names: tuple[str, ...]) -> None:
        super().__init__(what, None, place)
        self.args, self.names = (what, place, names), names


@frozen
class GradedReply:
    """A reward, its metrics, and its ``components``: weight and value by name. ``steps`` are
    process rewards, as an observation has them."""

    reward: float
    metrics: Mapping[str, float]
    components: Mapping[str, tuple[float, float]] = field(factory=dict)
    steps: Steps | None = None

    def __add__(self, other: GradedReply) -> GradedReply:
        return GradedReply(
            self.reward + other.reward,
            {**self.metrics, **other.metrics},
            {**self.components, **other.components},
            joined_steps(self.steps, other.steps),
        )


@frozen
class OwnGrade:
    """What a function returned: its ``numbers`` by name, or "" for a single one, and ``steps``."""

    numbers: Mapping[str, float]
    steps: Steps | None = None


@frozen
class OwnFunction:
    """A function of the user's own as a grader. ``weights``: of the numbers that it returns by
    name. Raise DataError if it is not found or does not take two arguments."""

    target: str
    weights: Mapping[str, float]
    function: Any = field(init=False, eq=False, repr=False)
    whole: bool = field(init=False)
    awaited: bool = field(init=False)

    @function.default
    def _load(self) -> Any:
        return load_attribute(self.target)

    @whole.default
    def _takes_conversation(self) -> bool:
        signature = signature_of(self.function)
        if signature is None:
            return False
        require_fits(Code(self.target, "reward"), signature)
        return next(iter(signature.parameters)) in CONVERSATION

    @awaited.default
    def _is_coroutine(self) -> bool:
        called = type(self.function).__call__  # of an object that is called
        return any(map(inspect.iscoroutinefunction, (self.function, called)))

    def __call__(self, reply: str, row: DataRow, messages: Messages) -> OwnGrade:
        """Return what it says of a reply. Raise RewardError if it fails."""
        try:
            returned = self.function(*self._arguments(reply, row, messages))
        except (Exception, SystemExit) as error:
            raise self._wrong(f"raised {explained(error)}", row) from error
        return self._grade(returned, reply, row)

    async def on_loop(self, reply: str, row: DataRow, messages: Messages) -> OwnGrade:
        """Do the same for a function that is ``async``."""
        try:
            returned = await self.function(*self._arguments(reply, row, messages))
        except (Exception, SystemExit) as error:
            raise self._wrong(f"raised {explained(error)}", row) from error
        return self._grade(returned, reply, row)

    def _arguments(self, reply: str, row: DataRow, messages: Messages) -> tuple[Any, Any]:
        said = [dict(message) for message in messages] if self.whole else reply
        return said, dict(row.fields)

    def _grade(self, returned: Any, reply: str, row: DataRow) -> OwnGrade:
        """Return what was returned as numbers, with a list of ``steps`` as process rewards."""
        given = returned.get(STEPS) if isinstance(returned, Mapping) else None
        if not isinstance(given, list | tuple):
            return OwnGrade(self._numbers(returned, row))
        try:
            steps = read_steps(given, len(reply))
        except DataError as error:
            raise self._wrong(f"returned steps that cannot be used: {error.what}", row) from error
        others = {name: value for name, value in returned.items() if name != STEPS}
        return OwnGrade(self._numbers(others, row) if others or self.weights else {}, steps)

    def _numbers(self, returned: Any, row: DataRow) -> Mapping[str, float]:
        parts = returned if isinstance(returned, Mapping) else {"": returned}
        named = all(isinstance(name, str) and name for name in parts)
        if parts is returned and not (parts and named):
            raise self._wrong(f"returned {_short(returned)}: each number needs a name", row)
        numbers = dict[str, float]()
        for name, value in parts.items():
            number = as_number(value)
            if number is None or not math.isfinite(number):
                what = f"{_unusable(value)} as {name!r}" if name else _unusable(value)
                raise self._wrong(f"returned {what}", row)
            numbers[name] = number
        if self.weights and parts.keys() != self.weights.keys():
            given = f"numbers named {_listed(parts)}" if "" not in parts else "a number alone"
            due = f"`weights` names {_listed(self.weights)}"
            what = self._of_row(f"returned {given}, and {due}", row)
            raise MisnamedError(what, row.place, tuple(filter(None, parts)))
        return numbers

    def _wrong(self, what: str, row: DataRow) -> RewardError:
        return RewardError(self._of_row(what, row), place=row.place)

    def _of_row(self, what: str, row: DataRow) -> str:
        name = row.fields.get(ID)
        of_row = "" if name is None else f", for the row with id {name!r},"
        return f"`{self.target}`{of_row} {what}"


@frozen
class Reward:
    """The weighted sum of grades. ``answer`` is the field of the right answer, None if rows have
    none. ``format_coef`` is subtracted if a grader that compares answers finds none. Raise
    DataError for a grader that cannot be used."""

    graders: tuple[GraderPlan, ...]
    answer: str | None
    format_coef: float
    _tools: tuple[Grader | OwnFunction, ...] = field(init=False, eq=False, repr=False)

    @_tools.default
    def _load_tools(self) -> tuple[Grader | OwnFunction, ...]:
        return tuple(
            OwnFunction(plan.args["function"], plan.args["weights"])
            if plan.grader == OWN
            else Grader(plan.grader, self.answer or "", plan.args.get("pattern"))
            for plan in self.graders
        )

    @property
    def comparing(self) -> list[Grader]:
        return [tool for tool in self._tools if isinstance(tool, Grader)]

    @property
    def is_awaited(self) -> bool:
        return any(isinstance(tool, OwnFunction) and tool.awaited for tool in self._tools)

    def __call__(self, reply: str, row: DataRow, messages: Messages) -> GradedReply:
        """Return what all graders say that are not ``async``. Blocks."""
        total, found = GradedReply(0.0, {}), True
        for plan, tool in zip(self.graders, self._tools, strict=True):
            if isinstance(tool, Grader):
                with at_place(row.place):
                    grade = tool(reply, row.fields)
                found &= grade is not None
                value = grade or 0.0
                part = {plan.name: (plan.weight, value)}
                total += GradedReply(plan.weight * value, {plan.name: value}, part)
            elif not tool.awaited:
                total += self._part(plan, tool, tool(reply, row, messages))
        if self.comparing:
            missed = float(found) - 1.0
            part = {"format": (self.format_coef, missed)} if self.format_coef else {}
            total += GradedReply(self.format_coef * missed, {"format": float(found)}, part)
        return total

    async def on_loop(self, reply: str, row: DataRow, messages: Messages) -> GradedReply:
        """Return what the graders say that are ``async``."""
        total = GradedReply(0.0, {})
        for plan, tool in zip(self.graders, self._tools, strict=True):
            if isinstance(tool, OwnFunction) and tool.awaited:
                total += self._part(plan, tool, await tool.on_loop(reply, row, messages))
        return total

    def _part(self, plan: GraderPlan, tool: OwnFunction, grade: OwnGrade) -> GradedReply:
        """Return the part of a function, its metrics by name; of several, by the function's too."""
        numbers = grade.numbers
        steps = grade.steps and [(end, plan.weight * value) for end, value in grade.steps]
        weights = {name: tool.weights.get(name, 1.0) for name in numbers}
        value = math.fsum(weights[name] * number for name, number in numbers.items())
        if "" in numbers:
            parts = {plan.name: (plan.weight, value)}
            return GradedReply(plan.weight * value, {plan.name: value}, parts, steps)
        alone = len(self.graders) == 1
        prefix = "" if alone else f"{plan.name}/"
        metrics = {} if alone else {plan.name: value}
        metrics |= {f"{prefix}{name}": number for name, number in numbers.items()}
        parts = {
            f"{prefix}{name}": (plan.weight * weights[name], number)
            for name, number in numbers.items()
        }
        return GradedReply(plan.weight * value, metrics, parts, steps)

    def require_gradable(self, row: Mapping[str, Any]) -> None:
        """Raise DataError for a row whose answer a grader cannot read."""
        for grader in self.comparing:
            require_gradable(grader.name, grader.answer, row)

    def accepts(self, reply: str, row: Mapping[str, Any]) -> bool:
        """Return whether no grader that compares answers and can grade the row refuses a reply."""
        return all(is_right(grader, reply, row) is not False for grader in self.comparing)

    def try_on(
        self,
        rows: Sequence[DataRow],
        data: str,
        asked: Callable[[DataRow], Messages],
        others: Sequence[str] = (),
    ) -> list[list[Mapping[str, float]]]:
        """Try the graders on the first rows, with prompts by ``asked``: functions on a reply
        without an answer, on the row's own answer, and on ``others``. Return what the functions
        return, in this order for each row. Raise DataError."""
        for grader in self.comparing:
            require_right(grader, [row.fields for row in rows[:TRIED]], data)
        return [
            [_tried(tool, row, asked(row), reply) for reply in (*self._replies(row), *others)]
            for tool in self._tools
            if isinstance(tool, OwnFunction)
            for row in rows[:TRIED_OWN]
        ]

    def _replies(self, row: DataRow) -> Iterator[str]:
        """Yield a reply without an answer, and the right one, if its field is known."""
        yield WITHOUT_ANSWER
        if (answer := self._right(row)) is not None:
            yield answer

    def _right(self, row: DataRow) -> str | None:
        answer = first_of(row.fields, ANSWER_FIELDS, self.answer)
        return None if answer is None else str(answer)

    def unearned(
        self, rows: Sequence[tuple[DataRow, Messages]], longest: int
    ) -> tuple[UnearnedReply, ...]:
        """Return the replies of a policy that knows nothing which all graders together pay as much
        as a right answer; none if they take more than some seconds."""
        until = time.monotonic() + _UNEARNED_SECONDS

        def worth(number: int, reply: str) -> float:
            if may_end_process(reply):  # which `rlc audit` tries, and reports
                return -math.inf
            row, asked = rows[number]
            said = reply, row, (*asked, {"role": "assistant", "content": reply})

            def call() -> float:
                import asyncio

                grade = self(*said)
                if self.is_awaited:
                    grade += asyncio.run(self.on_loop(*said))
                return grade.reward

            try:
                return _in_time(call, until - time.monotonic())
            except DataError:  # what is not graded earns nothing
                return -math.inf

        shown = [str(asked[-1].get("content")) if asked else "" for _, asked in rows]
        answers = [self._right(row) for row, _ in rows]
        asking = examined([*map(PanelTask, shown, answers)], longest)
        with suppress(TimeoutError):
            return panel_result(asking, worth).unearned
        return ()

    def __reduce__(self) -> tuple[Any, ...]:
        graders = json.dumps([asdict(grader) for grader in self.graders])
        return _made_once, (graders, self.answer, self.format_coef)


def _tried(tool: OwnFunction, row: DataRow, asked: Messages, reply: str) -> Mapping[str, float]:
    """Return what a function says of a reply. Raise RewardError also if it takes too long."""
    said = (row, (*asked, {"role": "assistant", "content": reply}))

    def call() -> Mapping[str, float]:
        import asyncio

        found = asyncio.run(tool.on_loop(reply, *said)) if tool.awaited else tool(reply, *said)
        return found.numbers

    try:
        return _in_time(call)
    except TimeoutError as error:
        what = f"did not return within {_TRIAL_SECONDS:.0f} seconds"
        raise RewardError(f"`{tool.target}` {what}", place=row.place) from error


@lru_cache(maxsize=64)
def _made_once(graders: str, answer: str | None, format_coef: float) -> Reward:
    plans = tuple(GraderPlan(**plan) for plan in json.loads(graders))
    return Reward(plans, answer, format_coef)


def _unusable(value: Any) -> str:
    """Describe a value that is not a number, and what may be wrong with it."""
    if value is None:
        return "None instead of a number: is a `return` missing?"
    if inspect.iscoroutine(value):
        value.close()
        return "a coroutine, which nothing awaits: make it an `async def`, and `await` in it"
    return f"{_short(value)} instead of a finite number"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "nothing"


def _in_time(call: Callable[[], _T], seconds: float | None = None) -> _T:
    """Call in a thread of its own. Raise TimeoutError if it takes too long."""
    import threading
    from concurrent.futures import Future

    done = Future[_T]()

    def make() -> None:
        try:
            done.set_result(call())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=make, daemon=True).start()
    return done.result(_TRIAL_SECONDS if seconds is None else max(seconds, 0.0))


Step = Literal["import", "call", "reward", "trial"]


@frozen
class CodeFailure:
    """What is wrong with code, found when it was imported, compared with its ``call``, tried as a
    ``reward``, or in a ``trial`` on a generated batch. ``places``: where in the user's own code the
    error was raised, then who called."""

    step: Step
    error: DataError
    places: tuple[FilePlace, ...] = ()


@frozen
class TriedCode:
    """What came of a trial: a ``failure``, None if nothing failed; of a reward that returns several
    numbers, by how much each, with its weight, ``moved`` between the replies that were tried.
    ``falls``: it pays each right answer less than a reply without one, and that no less than a
    long one. ``unearned``: replies of a policy that knows nothing that all graders pay."""

    failure: CodeFailure | None = None
    moved: Mapping[str, float] = field(factory=dict)
    falls: bool = False
    unearned: tuple[UnearnedReply, ...] = ()


@frozen
class CodeTrial:
    """Code to be tried. A reward, as ``grader``, is given the first ``rows`` with their prompts,
    and replies of up to ``longest`` characters; so are all ``graders`` together, if there are
    any. Functions of batches, of episodes and of tasks are called with those of a ``batch``."""

    recipe: str
    code: Code
    grader: GraderPlan | None = None
    answer: str | None = None
    rows: tuple[tuple[DataRow, Messages], ...] = ()
    longest: int = 0
    graders: tuple[GraderPlan, ...] = ()
    format_coef: float = 0.0
    batch: SampleBatch | None = None

    def tried(self) -> TriedCode:
        """Return what came of it. Blocks until a process has tried it."""
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", f"import {__name__} as trial; trial.serve_trial()"],
                input=pickle.dumps(self),
                capture_output=True,
                timeout=_PATIENCE,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            what = f"`{self.code.target}` was not imported and tried in {_PATIENCE:.0f} seconds"
            return TriedCode(CodeFailure("import", DataError(what)))
        if done.stdout:
            answer: TriedCode = pickle.loads(done.stdout)
            return answer
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        what = f"`{self.code.target}` ended Python with exit status {done.returncode}"
        hint = f"it wrote: {last[0]}" if last else None
        return TriedCode(CodeFailure("import", DataError(what, hint)))

    def tried_here(self) -> TriedCode:
        search_beside(self.recipe)
        step: Step = "import"
        try:
            if self.code.kind == "taskset":
                from rlc.data.grading.tasksets import require_valid

                require_valid(self.code.target, self.code.args)
                return TriedCode()
            function = load_attribute(self.code.target)
            step = "call"
            require_fits(self.code, signature_of(function))
            if self.batch is not None:
                from rlc.data.functions.called import FUNCTIONS

                step = "trial"
                FUNCTIONS[self.code.kind](self.code).try_on(self.batch)
                return TriedCode()
            step = "reward"
            if self.grader is not None:
                asked = {id(row): messages for row, messages in self.rows}
                rows = [row for row, _ in self.rows]
                reward = Reward((self.grader,), self.answer, 0.0)
                long = [(WITHOUT_ANSWER * self.longest)[: self.longest]] if self.longest else []
                found = reward.try_on(rows, self.recipe, lambda row: asked[id(row)], long)
                compared = _compared(found, self.grader.args["weights"])
                if self.graders and self.longest:
                    whole = Reward(self.graders, self.answer, self.format_coef)
                    return evolve(compared, unearned=whole.unearned(self.rows, self.longest))
                return compared
        except DataError as error:
            return TriedCode(CodeFailure(step, error, _places(error.__cause__ or error)))
        return TriedCode()


def _compared(
    numbers: Sequence[Sequence[Mapping[str, float]]], weights: Mapping[str, float]
) -> TriedCode:
    """Return what the numbers of a function say, for each row of the replies that were tried."""
    weighed = [
        [{name: weights.get(name, 1.0) * each[name] for name in each} for each in of_row]
        for of_row in numbers
    ]
    every = [each for of_row in weighed for each in of_row]
    totals = [[math.fsum(each.values()) for each in of_row] for of_row in weighed]
    values = {
        name: [each[name] for each in every if name in each]
        for name in dict.fromkeys(chain(*every))
    }
    return TriedCode(
        moved={name: max(found) - min(found) for name, found in values.items()},
        falls=bool(totals) and all(len(t) == 3 and t[1] < t[0] >= t[2] for t in totals),
    )


def _places(error: BaseException) -> tuple[FilePlace, ...]:
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return (FilePlace(error.filename, error.lineno, error.lineno, error.offset),)
    others = [sysconfig.get_path("stdlib"), *map(sysconfig.get_path, ("purelib", "platlib"))]
    others.append(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    return tuple(
        FilePlace(frame.filename, frame.lineno or 1, frame.lineno or 1)
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if os.path.isfile(frame.filename)
        and not any(frame.filename.startswith(os.path.join(other, "")) for other in others)
    )[:4]  # more say nothing new


def serve_trial() -> None:
    """Answer one trial in a process. The code's output goes to standard error."""
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    trial = pickle.load(sys.stdin.buffer)
    with answer:
        pickle.dump(trial.tried_here(), answer)
    os._exit(0)
