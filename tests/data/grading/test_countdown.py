"""Countdown: exact arithmetic, and problems that can be solved."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.grading import countdown
from rlc.data.grading.countdown import SPLITS, evaluate, problem, row, solves, test_problems

test_problems.__test__ = False  # type: ignore[attr-defined]  # not a test, only named like one


@st.composite
def expressions(draw: st.DrawFn, depth: int = 4) -> tuple[str, Fraction | None]:
    """An expression in full brackets, and its value: None where it divides by zero."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(0, 99))
        return str(number), Fraction(number)
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    operation = draw(st.sampled_from("+-*/"))
    blank = draw(st.sampled_from(["", " ", "\n"]))
    text = f"({left[0]}{blank}{operation}{blank}{right[0]})"
    if left[1] is None or right[1] is None or (operation == "/" and right[1] == 0):
        return text, None
    values = {
        "+": lambda: left[1] + right[1],
        "-": lambda: left[1] - right[1],
        "*": lambda: left[1] * right[1],
        "/": lambda: left[1] / right[1],
    }
    return text, values[operation]()


@given(expressions())
def test_the_value_is_that_of_exact_fractions(case: tuple[str, Fraction | None]) -> None:
    assert evaluate(case[0]) == case[1]


@given(st.lists(st.sampled_from("+-*/"), min_size=1, max_size=8), st.data())
def test_precedence_and_order_are_those_of_python(
    operations: list[str], data: st.DataObject
) -> None:
    numbers = [data.draw(st.integers(1, 99)) for _ in range(len(operations) + 1)]
    parts = [
        p for pair in itertools.zip_longest(numbers, operations) for p in pair if p is not None
    ]
    fractions = [f"Fraction({part})" if isinstance(part, int) else part for part in parts]
    expected = eval("".join(fractions), {"Fraction": Fraction})  # the test's own digits only
    assert evaluate(" ".join(map(str, parts))) == expected


@given(st.one_of(st.text(), st.text(alphabet="0123456789+-*/(). \n", max_size=60)))
def test_no_text_raises(text: str) -> None:
    value = evaluate(text)
    assert value is None or isinstance(value, Fraction)


@given(st.integers(1, 99), st.integers(1, 99), st.sampled_from(["**", "//"]))
def test_powers_and_floor_division_are_no_expressions(a: int, b: int, operation: str) -> None:
    assert evaluate(f"{a}{operation}{b}") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "()",
        "1 2",
        "(1",
        "1)",
        "1 + (2",
        ")1(",
        "1)(2",
        "+",
        "1 +",
        "1/0",
        "1/(2-2)",
        "07",
        "1.5",
        "1e3",
        "x",
        "__import__('os')",
        "１",
        "1 = 1",
        "9" * 1001,
        "2 * * 3",
        "4 / / 2",
    ],
)
def test_what_is_no_expression(text: str) -> None:
    assert evaluate(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("-3", -3),
        ("2*-3", -6),
        ("1--1", 2),
        ("-(1+2)*2", -6),
        ("8/4/2", 1),
        ("2-3-4", -5),
        ("+5", 5),
    ],
)
def test_signs_and_order(text: str, value: int) -> None:
    assert evaluate(text) == value


def test_deep_nesting_is_no_problem() -> None:
    assert evaluate("(" * 400 + "7" + ")" * 400) == 7


def test_a_value_must_be_exact() -> None:
    assert evaluate("1/3*3") == 1
    assert not solves("333333 / 333332", [333333, 333332], 1)  # within 1e-5 of the target


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("(1 + 2) * 3", True),
        ("3 * (2 + 1)", True),
        ("3 * 3", False),  # not the numbers given
        ("1 + 2 + 3 + 3", False),  # one of them twice
        ("(1 + 2) + 3 * 1", False),
        ("9", False),
        ("1 * 2 + 3", False),  # the wrong value
    ],
)
def test_every_number_is_used_once(text: str, right: bool) -> None:
    assert solves(text, [3, 1, 2], 9) is right


def _reachable(values: tuple[Fraction, ...]) -> set[Fraction]:
    if len(values) == 1:
        return {values[0]}
    found: set[Fraction] = set()
    for i, j in itertools.permutations(range(len(values)), 2):
        rest = tuple(v for k, v in enumerate(values) if k not in (i, j))
        a, b = values[i], values[j]
        for c in [a + b, a - b, a * b, *([a / b] if b else [])]:
            found |= _reachable((*rest, c))
    return found


@pytest.mark.parametrize("split", SPLITS)
def test_problems_have_three_or_four_numbers_and_a_target_they_reach(split: str) -> None:
    for seed in range(6):
        made = problem(split, seed)
        assert len(made["nums"]) in (3, 4)
        assert all(1 <= number <= 99 for number in made["nums"])
        assert 10 <= made["target"] <= 100
        assert Fraction(made["target"]) in _reachable(tuple(map(Fraction, made["nums"])))


def test_a_problem_is_named_by_its_split_and_seed() -> None:
    assert problem("train", 3) == problem("train", 3)
    assert len({str(problem("train", seed)) for seed in range(50)}) == 50


def test_no_problem_is_in_two_splits() -> None:
    def key(made: dict[str, object]) -> str:
        return f"{sorted(made['nums'])} {made['target']}"  # type: ignore[call-overload]

    test = {key(made) for made in test_problems()}
    assert len(test) == len(test_problems()) == countdown.TEST_SIZE == 1_024
    others = [{key(problem(split, n)) for n in range(300)} for split in SPLITS if split != "test"]
    for one, other in itertools.combinations([test, *others], 2):
        assert not one & other


def test_the_question_says_what_is_asked() -> None:
    made = row([1, 2, 3], 9)
    assert made["question"].startswith(
        "Using the numbers 1, 2, 3, find a way to reach the target number 9."
    )
    assert made["answer"] == "9"
