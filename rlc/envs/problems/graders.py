"""Is a reply right? Graders find the answer in it and compare it with that of the row.

The answer is what the last ``\\boxed{…}`` holds, else the last ``<answer>…</answer>``, else what
each grader says. A reply in which none can be found has the wrong format.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from attrs import frozen

from rlc.envs.base import EnvError
from rlc.envs.problems import countdown
from rlc.envs.problems.math_equivalence import compare
from rlc.envs.python.attributes import load_attribute

LONGEST = 2_000  # characters of an answer that is compared; a longer one is wrong
_TOLERANCE = Fraction(1, 10**6)
_MOST_DIGITS = 300

_BRACE = re.compile(r"\\boxed\s*\{|[{}]")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?|\.[0-9]+)"
)
_FRACTION = re.compile(r"([-+]?[0-9]+)\s*/\s*([0-9]+)")

Row = Mapping[str, Any]


@frozen
class Grade:
    """``correct`` is 0 or 1, or what a grader of one's own gives; ``formatted``: an answer was
    found."""

    correct: float
    formatted: bool

    def reward(self, format_coef: float) -> float:
        """``format_coef (format − 1) + correct``"""
        return format_coef * (float(self.formatted) - 1.0) + self.correct


Grader = Callable[[str, Row], Grade]
"""From a reply and the row of its problem to the grade."""

NOT_FOUND = Grade(0.0, False)


@frozen
class GraderPlan:
    """What a recipe says of a grader; ``answer`` is the field of the right answer."""

    name: str
    answer: str
    pattern: str | None = None
    function: str | None = None


def make_grader(plan: GraderPlan) -> Grader:
    """Raises EnvError for a grader that cannot be made: a package that is not here, a pattern that
    is none, a function that is not there."""
    return _Travelling(plan, _MAKERS[plan.name](plan))


@frozen
class _Travelling:
    """A grader that goes to another process as its plan, and is made again there, once."""

    plan: GraderPlan
    grade: Grader

    def __call__(self, text: str, row: Row) -> Grade:
        return self.grade(text, row)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.plan,)


@lru_cache(maxsize=64)
def _arrived(plan: GraderPlan) -> Grader:
    return make_grader(plan)


def require_gradable(plan: GraderPlan, row: Row) -> None:
    """Raises EnvError for a row whose answer the grader could not compare with anything."""
    if plan.name == "numeric":
        _gold_number(row, plan.answer)
    if plan.name == "countdown":
        countdown_task(row, plan.answer)


def require_right(plan: GraderPlan, grader: Grader, rows: Sequence[Row], data: str) -> None:
    """Raises EnvError where a grader calls most of the rows' own answers wrong: then it, or the
    field of the answer, is not what these rows need. Where it is not known how a right reply
    would look (a target, a pattern, a function of one's own), nothing is tried."""
    if plan.name not in ("exact", "math", "numeric"):
        return
    replies = [f"\\boxed{{{_gold(row, plan.answer)}}}" for row in rows]
    wrong = [
        row for row, reply in zip(rows, replies, strict=True) if not is_right(grader, reply, row)
    ]
    if 2 * len(wrong) > len(rows):
        raise EnvError(
            f"`grader = {plan.name}` calls the right answers of {data} wrong ({len(wrong)} of the "
            f"first {len(rows)}, such as {str(wrong[0][plan.answer])[:60]!r}): take another "
            "grader, or name the field that holds the `answer`"
        )


def is_right(grader: Grader, reply: str, row: Row) -> bool | None:
    """What the grader says of a reply; None where the row lacks what it needs for that."""
    try:
        return grader(reply, row).correct > 0
    except EnvError:
        return None


def boxed(text: str) -> str | None:
    """What the last ``\\boxed{…}`` with balanced braces holds, stripped; None without one."""
    opened, found, latest = list[int | None](), None, -1
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(None if brace[0] == "{" else brace.end())
        elif opened and (start := opened.pop()) is not None and start > latest:
            found, latest = text[start : brace.start()].strip(), start
    return found


def tagged(text: str, last: bool = True) -> str | None:
    """What the last, or first, ``<answer>…</answer>`` holds, stripped; None where there is none."""
    found = _TAGGED.findall(text)
    return found[-1 if last else 0].strip() if found else None


def final_answer(text: str) -> str | None:
    """The answer that a reply marks as such; None where it marks none, or an empty one."""
    answer = boxed(text)
    return (tagged(text) if answer is None else answer) or None


def number_in(text: str) -> Fraction | None:
    """The number that a text is: with commas, units of currency or a percent sign around it, or a
    fraction of whole numbers. None where it is no number."""
    bare = text.strip().strip("$€£%").removesuffix(".").replace("\\$", "").replace("\\%", "")
    bare = bare.replace("{,}", ",").replace("−", "-").strip().strip("$%").strip()
    if len(bare) > _MOST_DIGITS:
        return None
    if parts := _FRACTION.fullmatch(bare):
        return Fraction(int(parts[1]), int(parts[2])) if int(parts[2]) else None
    return _fraction(bare) if _NUMBER.fullmatch(bare) else None


def last_number(text: str) -> Fraction | None:
    """The last number of a text; None where it has none."""
    found = [match[0] for match in _NUMBER.finditer(text) if len(match[0]) <= _MOST_DIGITS]
    return _fraction(found[-1]) if found else None


def same_number(one: Fraction, other: Fraction) -> bool:
    """Whole numbers must be equal; others to within a millionth of the larger."""
    if one.denominator == other.denominator == 1:
        return one == other
    return abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


def _fraction(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def _gold(row: Row, field: str) -> str:
    """The right answer as text: that which a worked solution marks, after ``####`` or in a box."""
    text = str(row[field]).strip()
    marked = boxed(text)
    return text.rpartition("####")[2].strip() if marked is None else marked


def _gold_number(row: Row, field: str) -> Fraction:
    number = number_in(_gold(row, field))
    if number is None:
        raise EnvError(f"the answer {row[field]!r} is no number, as `grader = numeric` needs it")
    return number


def _numeric(plan: GraderPlan) -> Grader:
    """Without a mark, the last number of the reply is the answer."""

    def grade(text: str, row: Row) -> Grade:
        marked = final_answer(text)
        answer = last_number(text) if marked is None else number_in(marked)
        if answer is None:
            return NOT_FOUND
        return Grade(float(same_number(answer, _gold_number(row, plan.answer))), True)

    return grade


def _exact(plan: GraderPlan) -> Grader:
    """Without a mark, the whole reply is the answer. Runs of white space count as one blank."""

    def grade(text: str, row: Row) -> Grade:
        answer = final_answer(text) or text.strip()
        return _compared(answer, _gold(row, plan.answer)) if answer else NOT_FOUND

    return grade


def _regex(plan: GraderPlan) -> Grader:
    """The answer is the first group of the last match, or all of it in a pattern without groups."""
    assert plan.pattern is not None
    try:
        pattern = re.compile(plan.pattern)
    except re.error as error:
        raise EnvError(f"the pattern {plan.pattern!r} is no regular expression: {error}") from error

    def grade(text: str, row: Row) -> Grade:
        matches = list(pattern.finditer(text))
        answer = matches[-1][min(1, pattern.groups)] if matches else None
        return NOT_FOUND if answer is None else _compared(answer, _gold(row, plan.answer))

    return grade


def _compared(answer: str, gold: str) -> Grade:
    return Grade(float(" ".join(answer.split()) == " ".join(gold.split())), True)


def _countdown(plan: GraderPlan) -> Grader:
    """The answer, in ``<answer>`` tags, is an expression of the row's ``nums`` for its ``target``
    (or its answer)."""

    def grade(text: str, row: Row) -> Grade:
        answer = tagged(text)
        if answer is None or countdown.evaluate(answer) is None:
            return NOT_FOUND
        numbers, target = countdown_task(row, plan.answer)
        return Grade(float(countdown.solves(answer, numbers, target)), True)

    return grade


def countdown_task(row: Row, answer: str = "answer") -> tuple[list[int], int]:
    """Numbers and target of a row. Raises EnvError for a row without them."""
    numbers, target = row.get("nums"), row.get("target", row.get(answer))
    found = re.findall(r"[0-9]+", numbers) if isinstance(numbers, str) else list(numbers or ())
    try:
        if not found or target is None:
            raise ValueError("one of them is missing")
        return [int(number) for number in found], int(target)
    except (TypeError, ValueError) as error:
        raise EnvError(
            "countdown needs whole numbers in the fields `nums` and `target` of each row"
        ) from error


def _math(plan: GraderPlan) -> Grader:
    """Equality of what the answers mean, by math-verify. The answer must be marked; one that takes
    too long to compare is wrong."""
    if importlib.util.find_spec("math_verify") is None:
        raise EnvError("`grader = math` needs math-verify: pip install 'math-verify[antlr4_13_2]'")

    def grade(text: str, row: Row) -> Grade:
        answer = final_answer(text)
        if answer is None or len(answer) > LONGEST:
            return NOT_FOUND
        meaning = compare(answer, _gold(row, plan.answer))
        if meaning is None:
            return Grade(0.0, True)
        if not meaning.answer:
            return NOT_FOUND
        if not meaning.gold:
            raise EnvError(f"the answer {row[plan.answer]!r} is nothing that math-verify can read")
        return Grade(float(meaning.same), True)

    return grade


def _python(plan: GraderPlan) -> Grader:
    """A function of the whole reply and the row that gives a number or a truth value, or None
    where it found no answer."""
    assert plan.function is not None
    function = load_attribute(plan.function)

    def grade(text: str, row: Row) -> Grade:
        value = function(text, row)
        if value is None:
            return NOT_FOUND
        if not isinstance(value, bool | int | float) or not math.isfinite(value):
            raise EnvError(f"the grader {plan.function} gave {value!r} instead of a finite number")
        return Grade(float(value), True)

    return grade


_MAKERS: dict[str, Callable[[GraderPlan], Grader]] = {
    "countdown": _countdown,
    "exact": _exact,
    "math": _math,
    "numeric": _numeric,
    "python": _python,
    "regex": _regex,
}
