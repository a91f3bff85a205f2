"""Countdown: reach a target with given numbers. Problems from a seed, and exact arithmetic.

Expressions are evaluated with fractions, never with ``eval``. Differences from the reward of the
public recipes:

- the value must equal the target exactly, not to within 1e-5;
- ``**``, ``//``, decimal points and numbers with a leading zero are not expressions, instead of
  power, floor division, two numbers each, and a syntax error;
- the tags of an answer may be written in any case and span several lines;
- only the reply is graded, so there is no prompt to cut off before it.

As there, every number must be used exactly once, although the question says at most once.
"""

from __future__ import annotations

import operator
import random
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import cache
from hashlib import blake2b
from itertools import permutations
from typing import Any

from rlc.seeds import derive_seed

LONGEST = 1_000  # characters of an expression that is evaluated
NUMBERS = (1, 99)
TARGETS = (10, 100)
TEST_SIZE, STAGE_SIZE = 1_024, 50_000

SPLITS = ("train", "test", "stage2", "stage3")

_TOKEN = re.compile(r"\s*(?:(0|[1-9][0-9]*)|([-+*/()]))\s*")
_NEGATE = "negate"
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, _NEGATE: 3}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


def evaluate(text: str) -> Fraction | None:
    """Return the value of an expression of whole numbers, ``+ - * /`` and brackets, of up to
    :data:`LONGEST` characters; None for anything else, and a division by zero."""
    tokens, at = list[str](), 0
    while at < len(text) <= LONGEST and (match := _TOKEN.match(text, at)):
        tokens.append(match[1] or match[2])
        at = match.end()
    if at < len(text) or not tokens:  # some of the text is not a token
        return None
    try:
        return _value(tokens)
    except (LookupError, ValueError, ZeroDivisionError):  # unbalanced, misplaced, divided by zero
        return None


def solves(text: str, numbers: Sequence[int], target: int) -> bool:
    """Return whether an expression uses each of the numbers exactly once and equals the target."""
    used = [int(digits) for digits in re.findall(r"[0-9]+", text[:LONGEST])]
    return sorted(used) == sorted(numbers) and evaluate(text) == target


def question_of(numbers: Sequence[int], target: int) -> str:
    """Return the text of a problem, in the words of the published recipes, to compare results."""
    listed = ", ".join(map(str, numbers))
    return (
        f"Using the numbers {listed}, find a way to reach the target number {target}. You can use "
        "basic arithmetic operations (+, -, *, /) and each number can only be used once. Show your "
        "step-by-step calculation and output the final answer within <answer>...</answer>, for "
        "example <answer> (1 + 2) / 3 </answer>."
    )


def problem(split: str, seed: int) -> dict[str, Any]:
    """Return the problem of a seed. Its content decides its split: no problem is in two."""
    rng = random.Random(derive_seed(seed, "countdown", split))
    while True:
        numbers, target = _draw(rng)
        text = ",".join(map(str, [*sorted(numbers), target]))
        digest = blake2b(text.encode(), digest_size=1).digest()
        if target is not None and SPLITS[digest[0] % len(SPLITS)] == split:
            return row(numbers, target)


@cache
def test_problems() -> tuple[dict[str, Any], ...]:
    """Return the test split: :data:`TEST_SIZE` problems, no two alike."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    number = 0
    while len(found) < TEST_SIZE:
        made = problem("test", number)
        found.setdefault((*sorted(made["nums"]), made["target"]), made)
        number += 1
    return tuple(found.values())


def row(numbers: Sequence[int], target: int) -> dict[str, Any]:
    return {
        "question": question_of(numbers, target),
        "answer": str(target),
        "target": target,
        "nums": list(numbers),
    }


def _draw(rng: random.Random) -> tuple[list[int], int | None]:
    """Return numbers, and the value of a random expression of them; None for no target."""
    numbers = [rng.randint(*NUMBERS) for _ in range(rng.choice((3, 4)))]
    values = list(numbers)
    while len(values) > 1:
        left, right = (values.pop(rng.randrange(len(values))) for _ in range(2))
        operation = rng.choice("+-*/")
        if operation == "/":
            if right == 0 or left % right:
                return numbers, None
            values.append(left // right)
        else:
            values.append(_BINARY[operation](left, right))
    low, high = TARGETS
    return numbers, values[0] if low <= values[0] <= high else None


def _value(tokens: Sequence[str]) -> Fraction:
    """Evaluate with two stacks: no nesting is too deep. Raise ValueError or LookupError."""
    values, waiting, operand_due = list[Fraction](), list[str](), True
    for token in tokens:
        if operand_due and token in ("+", "-"):  # a sign
            if token == "-":
                waiting.append(_NEGATE)
        elif operand_due != (token.isdigit() or token == "("):
            raise ValueError(token)
        elif token.isdigit():
            values.append(Fraction(int(token)))
            operand_due = False
        elif token == "(":
            waiting.append(token)
        elif token == ")":
            while waiting[-1] != "(":
                _apply(waiting.pop(), values)
            waiting.pop()
        else:
            while waiting and _PRECEDENCE.get(waiting[-1], 0) >= _PRECEDENCE[token]:
                _apply(waiting.pop(), values)
            waiting.append(token)
            operand_due = True
    if operand_due:
        raise ValueError("the last operand is missing")
    while waiting:
        _apply(waiting.pop(), values)
    (value,) = values
    return value


def _apply(operation: str, values: list[Fraction]) -> None:
    if operation == _NEGATE:
        values.append(-values.pop())
        return
    right, left = values.pop(), values.pop()
    values.append(_BINARY[operation](left, right))


def expression_for(row: Mapping[str, Any]) -> str | None:
    """Return an expression of a row's ``nums`` for its ``target``; None without one."""
    if not isinstance(row.get("nums"), list) or "target" not in row:
        return None
    return _reached([(Fraction(n), str(n)) for n in row["nums"]], Fraction(row["target"]))


def _reached(parts: Sequence[tuple[Fraction, str]], target: Fraction) -> str | None:
    if len(parts) == 1:
        return parts[0][1] if parts[0][0] == target else None
    for one, other in permutations(range(len(parts)), 2):
        (left, left_text), (right, right_text) = parts[one], parts[other]
        rest = [part for at, part in enumerate(parts) if at not in (one, other)]
        for sign, operation in _BINARY.items():
            if sign == "/" and not right:
                continue
            made = operation(left, right), f"({left_text} {sign} {right_text})"
            if (found := _reached([*rest, made], target)) is not None:
                return found
    return None
