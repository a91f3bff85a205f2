"""What rewards pay for nothing is found by replies that know nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from rlc.data.grading.panel import (
    BURIED,
    ECHO,
    EMPTY,
    LISTED,
    LONG,
    MARKS_ALONE,
    PanelTask,
    examined,
    panel_result,
)

ROWS = [("Which is larger, 4 or 3?", "4"), ("Which is larger, 7 or 5?", "7"), ("9 or 1?", "9")]
UNANSWERED = [(prompt, None) for prompt, _ in ROWS]
Rows = list[tuple[str, str]] | list[tuple[str, None]]


EVERYTHING = {EMPTY, ECHO, MARKS_ALONE, LISTED, LONG, BURIED}


def last(found: list[str]) -> str:
    return found[-1] if found else ""


def marked(reply: str) -> str:
    return last(re.findall(r"<answer>\s*(.*?)\s*</answer>", reply, re.DOTALL))


def last_number(reply: str) -> str:
    return last(re.findall(r"\d+", reply))


PAID: list[tuple[str, Rows, Callable[[str, str | None], float], set[str]]] = [
    ("anywhere", ROWS, lambda reply, answer: str(answer) in reply, {ECHO, LISTED, BURIED}),
    ("anywhere in the marks", ROWS, lambda reply, answer: str(answer) in marked(reply), {BURIED}),
    ("length beside it", ROWS, lambda r, a: (last_number(r) == a) + len(r) / 50, {LONG, BURIED}),
    ("length", UNANSWERED, lambda reply, _: len(reply) / 50, {LONG}),
    ("marks", UNANSWERED, lambda reply, _: "<answer>" in reply, {MARKS_ALONE}),
    ("marks, whatever the answer", ROWS, lambda reply, _: "<answer>" in reply, {MARKS_ALONE}),
    ("silence", UNANSWERED, lambda reply, _: max(0.0, 1 - len(reply)), {EMPTY}),
    ("echo", [(f"{p} {a}", a) for p, a in ROWS], lambda r, a: last_number(r) == a, {ECHO}),
    ("any line", ROWS, lambda reply, answer: str(answer) in reply.splitlines(), {BURIED}),
    ("any marks", ROWS, lambda r, a: str(a) in re.findall("<answer>(.*?)</answer>", r), {BURIED}),
    ("no marks", ROWS, lambda r, a: marked(r) in ("", a), EVERYTHING),
    ("the last number", ROWS, lambda reply, answer: last_number(reply) == answer, set()),
    ("the marked", ROWS, lambda r, a: 0.1 * ("<answer>" in r) + (marked(r) == a), set()),
    ("a little for marks", UNANSWERED, lambda reply, _: 0.1 * ("<answer>" in reply), set()),
    ("what no form fits", ROWS, lambda r, a: 0.1 * ("\\boxed" in r) + (r == f"={a}"), set()),
    ("letters", UNANSWERED, lambda r, _: r.count("e") / max(len(r), 1), set()),
    ("always", ROWS, lambda *_: 1.0, set()),
]


@pytest.mark.parametrize(
    ("rows", "reward", "found"), [one[1:] for one in PAID], ids=[one[0] for one in PAID]
)
def test_what_is_paid_for_nothing(
    rows: Rows, reward: Callable[[str, str | None], float], found: set[str]
) -> None:
    asked = examined([PanelTask(*row) for row in rows], 200)
    paid = panel_result(asked, lambda number, reply: float(reward(reply, rows[number][1])))
    kinds = {one.reply for one in paid.unearned}
    assert kinds >= found
    assert bool(kinds) == bool(found)
