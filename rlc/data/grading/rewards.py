"""Rewards: what graders and functions of the user's own say of a reply, added up by weight.

A function of the user's own takes two arguments, the reply and the row. If the first is called
``messages`` or ``conversation``, it is given the whole conversation, whose last message is the
reply. It returns a number, or several by name, whose weighted sum counts. It may be ``async``.
"""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from rlc.data.about import ID
from rlc.data.code.calls import Code
from rlc.data.code.functions import explained, load_attribute, require_fits, signature_of
from rlc.data.errors import DataError, at_place
from rlc.data.grading.graders import TRIED, Grader, is_right, require_gradable, require_right
from rlc.data.rows import DataRow
from rlc.plan import GraderPlan
from rlc.records import asdict, field, frozen

Messages = Sequence[Mapping[str, Any]]

OWN = "grade_with"
CONVERSATION = ("messages", "conversation")  # names of a first parameter that is given all of it
TRIED_OWN = 4  # first rows that functions of the user's own are called with before a run
_TRIAL_SECONDS = 120.0
_SAMPLE = "I do not know."
_SHOWN = 60  # characters of a value in a message


class RewardError(DataError):
    """A function of the user's own that failed, or returned something that is not a reward."""

    cause = "reward"


@frozen
class GradedReply:
    """A reward, and what was measured. ``components`` are what it is the weighted sum of: by name
    the weight and the value of each."""

    reward: float
    metrics: Mapping[str, float]
    components: Mapping[str, tuple[float, float]] = field(factory=dict)

    def __add__(self, other: GradedReply) -> GradedReply:
        return GradedReply(
            self.reward + other.reward,
            {**self.metrics, **other.metrics},
            {**self.components, **other.components},
        )


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
        """Whether it is given the whole conversation."""
        signature = signature_of(self.function)
        if signature is None:
            return False
        require_fits(Code(self.target, "reward"), signature)
        return next(iter(signature.parameters)) in CONVERSATION

    @awaited.default
    def _is_coroutine(self) -> bool:
        called = type(self.function).__call__  # of an object that is called
        return any(map(inspect.iscoroutinefunction, (self.function, called)))

    def __call__(self, reply: str, row: DataRow, messages: Messages) -> Mapping[str, float]:
        """The numbers that it returns, by name; a single one is called "". Raise RewardError if it
        fails, or returns anything else."""
        try:
            returned = self.function(*self._arguments(reply, row, messages))
        except (Exception, SystemExit) as error:
            raise self._wrong(f"raised {explained(error)}", row) from error
        return self._numbers(returned, row)

    async def on_loop(self, reply: str, row: DataRow, messages: Messages) -> Mapping[str, float]:
        """As calling it, for a function that is ``async``."""
        try:
            returned = await self.function(*self._arguments(reply, row, messages))
        except (Exception, SystemExit) as error:
            raise self._wrong(f"raised {explained(error)}", row) from error
        return self._numbers(returned, row)

    def total(self, numbers: Mapping[str, float]) -> float:
        return math.fsum(self.weights.get(name, 1.0) * value for name, value in numbers.items())

    def _arguments(self, reply: str, row: DataRow, messages: Messages) -> tuple[Any, Any]:
        """What it may change as it likes."""
        said = [dict(message) for message in messages] if self.whole else reply
        return said, dict(row.fields)

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
            raise self._wrong(f"returned {given}, and {due}", row)
        return numbers

    def _wrong(self, what: str, row: DataRow) -> RewardError:
        name = row.fields.get(ID)
        of_row = "" if name is None else f", for the row with id {name!r},"
        return RewardError(f"`{self.target}`{of_row} {what}", place=row.place)


@frozen
class Reward:
    """The weighted sum of what graders say of a reply.

    ``answer`` is the field of the right answer, None if rows have none. ``format_coef`` is taken
    off where a grader that compares answers finds none in the reply. It is made again in another
    process, once. Raise DataError for a grader that cannot be used.
    """

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
        """Whether some of the reward comes from functions that are ``async``."""
        return any(isinstance(tool, OwnFunction) and tool.awaited for tool in self._tools)

    def __call__(self, reply: str, row: DataRow, messages: Messages) -> GradedReply:
        """What all graders say that are not ``async``. Blocks."""
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
        """What the graders say that are ``async``."""
        total = GradedReply(0.0, {})
        for plan, tool in zip(self.graders, self._tools, strict=True):
            if isinstance(tool, OwnFunction) and tool.awaited:
                total += self._part(plan, tool, await tool.on_loop(reply, row, messages))
        return total

    def _part(
        self, plan: GraderPlan, tool: OwnFunction, numbers: Mapping[str, float]
    ) -> GradedReply:
        """The metrics of a function are its numbers by their names; of several functions, by the
        name of the function too, which is that of the sum."""
        value = tool.total(numbers)
        if "" in numbers:
            return GradedReply(
                plan.weight * value, {plan.name: value}, {plan.name: (plan.weight, value)}
            )
        alone = len(self.graders) == 1
        named = {name: name if alone else f"{plan.name}/{name}" for name in numbers}
        inner = {named[name]: number for name, number in numbers.items()}
        parts = {
            named[name]: (plan.weight * tool.weights.get(name, 1.0), number)
            for name, number in numbers.items()
        }
        return GradedReply(
            plan.weight * value, inner if alone else {plan.name: value} | inner, parts
        )

    def require_gradable(self, row: Mapping[str, Any]) -> None:
        """Raise DataError for a row whose answer a grader cannot read."""
        for grader in self.comparing:
            require_gradable(grader.name, grader.answer, row)

    def accepts(self, reply: str, row: Mapping[str, Any]) -> bool:
        """Whether all graders that compare answers, and can grade the row, call a reply right."""
        return all(is_right(grader, reply, row) is not False for grader in self.comparing)

    def try_on(
        self, rows: Sequence[DataRow], data: str, asked: Callable[[DataRow], Messages]
    ) -> None:
        """Try the graders on the first of these rows, of which ``asked`` gives the prompts. Raise
        DataError if one calls most of their own answers wrong, or a function of the user's own
        fails or returns no number."""
        for grader in self.comparing:
            require_right(grader, [row.fields for row in rows[:TRIED]], data)
        for tool in self._tools:
            if isinstance(tool, OwnFunction):
                for row in rows[:TRIED_OWN]:
                    self._try_own(tool, row, asked(row))

    def _try_own(self, tool: OwnFunction, row: DataRow, asked: Messages) -> None:
        answer = row.fields.get(self.answer) if self.answer else None
        reply = _SAMPLE if answer is None else str(answer)
        said = (row, (*asked, {"role": "assistant", "content": reply}))

        def call() -> Any:
            import asyncio

            return asyncio.run(tool.on_loop(reply, *said)) if tool.awaited else tool(reply, *said)

        try:
            _in_time(call)
        except TimeoutError as error:
            what = f"did not return within {_TRIAL_SECONDS:.0f} seconds"
            raise RewardError(f"`{tool.target}` {what}", place=row.place) from error

    def __reduce__(self) -> tuple[Any, ...]:
        graders = json.dumps([asdict(grader) for grader in self.graders])
        return _made_once, (graders, self.answer, self.format_coef)


@lru_cache(maxsize=64)
def _made_once(graders: str, answer: str | None, format_coef: float) -> Reward:
    plans = tuple(GraderPlan(**plan) for plan in json.loads(graders))
    return Reward(plans, answer, format_coef)


def as_number(value: Any) -> float | None:
    """A number, a truth value or a scalar of an array library as a float; None for all else."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        return float(plain) if isinstance(plain, bool | int | float) else None
    except (ValueError, RuntimeError, OverflowError):  # an array of several; 10**400
        return None


def _unusable(value: Any) -> str:
    """A value that is not a number, and what may be wrong with it."""
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


def _in_time(call: Callable[[], Any]) -> None:
    """Make a call in a thread of its own. Raise TimeoutError if it takes too long."""
    import threading
    from concurrent.futures import Future

    done = Future[None]()

    def make() -> None:
        try:
            call()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=make, daemon=True).start()
    done.result(_TRIAL_SECONDS)
