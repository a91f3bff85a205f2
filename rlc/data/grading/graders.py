"""Graders: they find the answer in a reply and compare it with that of the row.

The answer is the content of the last ``\\boxed{…}``, else of the last ``<answer>…</answer>``, else
what each grader says. A reply without an answer has the wrong format.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from rlc.data.errors import DataError, PackageMissingError
from rlc.data.grading import cookbook_math
from rlc.data.grading.countdown import evaluate, question_of, solves
from rlc.data.grading.math_equivalence import compare
from rlc.data.grading.patterns import found_with
from rlc.records import field, frozen

LONGEST = 2_000  # characters of an answer; a longer one is not compared
TRIED = 16  # first rows whose own answers are graded before a run
_TOLERANCE = Fraction(1, 10**6)
_MOST_DIGITS = 300

_BRACE = re.compile(r"\\boxed\s*\{|[{}]")
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL | re.IGNORECASE)
_NUMBER = re.compile(
    r"(?:(?<![\w)])[-+])?"
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3})?|\.[0-9]+)"
)
_PLAIN = re.compile(r"-?[0-9]{1,18}")  # what needs no math-verify to be compared
_FRACTION = re.compile(r"([-+]?[0-9]+)\s*/\s*([0-9]+)")

Row = Mapping[str, Any]


@frozen
class Grader:
    """A grader; ``answer`` is the field of the right one. Raise DataError if it cannot be made."""

    name: str
    answer: str
    pattern: str | None = None
    tool: Any = field(init=False, eq=False, repr=False)  # the compiled pattern

    @tool.default
    def _load_tool(self) -> Any:
        module, package = _NEEDS.get(self.name, ("", ""))
        if module and importlib.util.find_spec(module) is None:
            bare = package.partition("[")[0]
            what = f"`grader = {self.name}` needs {bare}: pip install '{package}'"
            raise PackageMissingError(what)
        if self.name == "regex":
            assert self.pattern is not None
            try:
                return re.compile(self.pattern)
            except re.error as error:
                what = f"the pattern {self.pattern!r} is no regular expression: {error}"
                raise DataError(what) from error
        return None

    def __call__(self, text: str, row: Row) -> float | None:
        """Return the grade of a reply, 0 or 1; None if no answer is found."""
        return _GRADERS[self.name](self, text, row)


def require_gradable(grader: str, answer: str, row: Row) -> None:
    """Raise DataError for a row whose answer, in that field, a grader cannot read."""
    if grader == "numeric":
        gold_number(right_answer(row, answer))
    if grader == "countdown":
        countdown_task(row, answer)


def completed(graders: Iterable[str], row: Row, question: str, answer: str) -> Row:
    """Add question and answer to a row of Countdown. Raise DataError for one that is unusable."""
    if "countdown" not in graders:
        return row
    numbers, target = countdown_task(row, answer)
    return {question: question_of(numbers, target), answer: str(target), **row}


def require_right(grader: Grader, rows: Sequence[Row], data: str) -> None:
    """Raise DataError if a grader, where it can be tried, calls most rows' own answers wrong."""
    wrong = [row for row in rows if wrongly_graded(grader, row)]
    if 2 * len(wrong) > len(rows):
        raise DataError(
            f"`grader = {grader.name}` calls the right answers of {data} wrong ({len(wrong)} of "
            f"the first {len(rows)}, such as {str(wrong[0][grader.answer])[:60]!r}): use another "
            "grader, or name the field that holds the `answer`"
        )


def wrongly_graded(grader: Grader, row: Row) -> bool:
    """Return whether a grader calls a row's own answer wrong in each form in which it may look for
    it; False where no such form is known."""
    if grader.name == "countdown":  # its answer is no reply to it
        return False
    gold = right_answer(row, grader.answer)
    replies = [f"\\boxed{{{gold}}}"]
    if grader.pattern is not None:
        replies = found_with(grader.pattern, (gold, " ".join(gold.split())))
    return bool(replies) and not any(is_right(grader, reply, row) for reply in (*replies, gold))


def is_right(grader: Grader, reply: str, row: Row) -> bool | None:
    """Return whether the grader calls a reply right; None if it cannot grade the row."""
    try:
        return (grader(reply, row) or 0.0) > 0
    except DataError:
        return None


def boxed(text: str) -> str | None:
    """Return the content of the last ``\\boxed{…}`` with balanced braces; None without one."""
    opened, found, latest = list[int | None](), None, -1
    for brace in _BRACE.finditer(text):
        if brace[0] != "}":
            opened.append(None if brace[0] == "{" else brace.end())
        elif opened and (start := opened.pop()) is not None and start > latest:
            found, latest = text[start : brace.start()].strip(), start
    return found


def tagged(text: str, last: bool = True) -> str | None:
    """Return the content of the last, or first, ``<answer>…</answer>``; None without one."""
    found = _TAGGED.findall(text)
    return found[-1 if last else 0].strip() if found else None


def final_answer(text: str) -> str | None:
    """Return the answer that a reply marks as such; None if it marks none, or an empty one."""
    answer = boxed(text)
    return (tagged(text) if answer is None else answer) or None


def number_in(text: str) -> Fraction | None:
    """Return a number, also with commas, currency or percent sign, or as a fraction; or None."""
    bare = text.strip().strip("$€£%").removesuffix(".").replace("\\$", "").replace("\\%", "")
    bare = bare.replace("{,}", ",").replace("−", "-").strip().strip("$%").strip()
    if len(bare) > _MOST_DIGITS:
        return None
    if parts := _FRACTION.fullmatch(bare):
        return Fraction(int(parts[1]), int(parts[2])) if int(parts[2]) else None
    return _fraction(bare) if _NUMBER.fullmatch(bare) else None


def last_number(text: str) -> Fraction | None:
    found = [match[0] for match in _NUMBER.finditer(text) if len(match[0]) <= _MOST_DIGITS]
    return _fraction(found[-1]) if found else None


def same_number(one: Fraction, other: Fraction) -> bool:
    """Return whether whole numbers are equal, and others to within a millionth of the larger."""
    if one.denominator == other.denominator == 1:
        return one == other
    return abs(one - other) <= _TOLERANCE * max(abs(one), abs(other))


def _fraction(digits: str) -> Fraction:
    return Fraction(digits.replace(",", ""))


def right_answer(row: Row, field: str) -> str:
    """Return the right answer as text; of a worked solution, after ``####`` or in the box."""
    return marked_answer(str(row[field]).strip())


def marked_answer(text: str) -> str:
    """Return what a worked solution marks as its answer: after ``####``, in the box, or all."""
    marked = boxed(text)
    return text.rpartition("####")[2].strip() if marked is None else marked


def gold_number(gold: str) -> Fraction:
    """Return the right answer as a number. Raise DataError if it is none."""
    number = number_in(gold)
    if number is None:
        raise DataError(f"the answer {gold!r} is no number, as `grader = numeric` needs it")
    return number


def _same_text(answer: str, gold: str) -> float:
    return float(answer.split() == gold.split())


def countdown_task(row: Row, answer: str = "answer") -> tuple[list[int], int]:
    """Return numbers and target of a row. Raise DataError for a row without them."""
    numbers, target = row.get("nums"), row.get("target", row.get(answer))
    found = re.findall(r"[0-9]+", numbers) if isinstance(numbers, str) else list(numbers or ())
    try:
        if not found or target is None:
            raise ValueError("one of them is missing")
        return [int(number) for number in found], int(target)
    except (TypeError, ValueError) as error:
        what = "countdown needs whole numbers in the fields `nums` and `target` of each row"
        raise DataError(what) from error


def graded_numeric(reply: str, gold: str) -> float | None:
    """Grade a number. An answer that is not marked is the last number of the reply."""
    marked = final_answer(reply)
    answer = last_number(reply) if marked is None else number_in(marked)
    return None if answer is None else float(same_number(answer, gold_number(gold)))


def graded_exact(reply: str, gold: str) -> float | None:
    """Grade a text. An answer that is not marked is the whole reply. Runs of white space count as
    one blank."""
    answer = final_answer(reply) or reply.strip()
    return _same_text(answer, gold) if answer else None


def graded_regex(reply: str, gold: str, pattern: re.Pattern[str]) -> float | None:
    """Grade what a pattern finds: the first group of its last match, or the match if there are no
    groups."""
    matches = list(pattern.finditer(reply))
    answer = matches[-1][min(1, pattern.groups)] if matches else None
    return None if answer is None else _same_text(answer, gold)


def graded_countdown(reply: str, row: Row, answer: str) -> float | None:
    """Grade an expression of the row's ``nums`` for its ``target`` or answer, between tags."""
    found = tagged(reply)
    if found is None or evaluate(found) is None:
        return None
    return float(solves(found, *countdown_task(row, answer)))


def _math(grader: Grader, text: str, row: Row) -> float | None:
    """Equality by math-verify of an answer that is marked; one that takes too long is wrong."""
    answer = final_answer(text)
    if answer is None or len(answer) > LONGEST:
        return None
    gold = right_answer(row, grader.answer)
    if _PLAIN.fullmatch(answer) and _PLAIN.fullmatch(gold):
        return float(int(answer) == int(gold))
    found = compare(answer, gold)
    if found is None:
        return 0.0
    if not found.answer:
        return None
    if not found.gold:
        raise DataError(f"the answer {row[grader.answer]!r} cannot be read by math-verify")
    return float(found.same)


# The module that a grader imports, and what it comes with.
_NEEDS = {
    "cookbook_math": ("pylatexenc", "tinker-cookbook[math-rl]"),
    "math": ("math_verify", "math-verify[antlr4_13_2]"),
}
_GRADERS: dict[str, Callable[[Grader, str, Row], float | None]] = {
    "cookbook_math": lambda of, text, row: cookbook_math.grade(text, right_answer(row, of.answer)),
    "countdown": lambda of, text, row: graded_countdown(text, row, of.answer),
    "exact": lambda of, text, row: graded_exact(text, right_answer(row, of.answer)),
    "math": _math,
    "numeric": lambda of, text, row: graded_numeric(text, right_answer(row, of.answer)),
    "regex": lambda of, text, row: graded_regex(text, right_answer(row, of.answer), of.tool),
}
