"""Functions of the user's own that compare: a tournament in both orders, and what fails in it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlc.data.errors import CodeError
from rlc.data.grading.rewards import RewardError
from rlc.envs.deadlines import OverdueError
from rlc.envs.judges.judging import TIE, ComparisonVerdict, OwnComparer
from rlc.plan.environments import ComparerPlan

OWN = """
import asyncio, math, threading

def shorter(one, other, row):
    return len(other) - len(one)

def is_shorter(one, other, row):
    return len(one) < len(other)

async def awaited(one, other, row):
    await asyncio.sleep(0)
    return (row["best"] == one) - (row["best"] == other)

def likes_what_it_reads_first(one, other, row):
    return 1.0

def fails(one, other, row):
    raise ValueError("no such word")

def forgets(one, other, row):
    if one > other:
        return 1

def not_a_number(one, other, row):
    return math.nan

def hangs(one, other, row):
    threading.Event().wait()

def of_two(one, other):
    return 1
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("own") / "own_comparisons.py"
    path.write_text(OWN, encoding="utf-8")
    return str(path)


def compared(
    target: str, replies: Sequence[str], row: Any = None, seconds: float | None = None
) -> list[ComparisonVerdict]:
    comparer = OwnComparer(ComparerPlan("mine", 2.0, target), seconds)
    return asyncio.run(comparer.compare("a task", replies, row, Random(1)))


@given(replies=st.lists(st.text("ab", max_size=5), min_size=2, max_size=6))
def test_each_gets_the_share_of_the_others_that_it_beats(own: str, replies: list[str]) -> None:
    """Equal replies are shown once; a truth value, and a number, mean the same."""
    found = compared(f"{own}:shorter", replies)
    assert [one.reward for one in found] == [
        one.reward for one in compared(f"{own}:is_shorter", replies)
    ]
    different = set(replies)
    for reply, judged in zip(replies, found, strict=True):
        others = different - {reply}
        won = [
            1.0 if len(reply) < len(other) else TIE if len(reply) == len(other) else 0.0
            for other in others
        ]
        assert judged.verdict.score == (sum(won) / len(won) if won else TIE)
        assert judged.reward == 2.0 * judged.verdict.score
    by_length = sorted(zip(replies, found, strict=True), key=lambda one: len(one[0]))
    assert all(a.verdict.score >= b.verdict.score for (_, a), (_, b) in pairwise(by_length))


def test_who_prefers_what_it_reads_first_decides_nothing(own: str) -> None:
    found = compared(f"{own}:likes_what_it_reads_first", ["a", "b", "c"])
    assert [one.verdict.score for one in found] == [TIE] * 3


def test_a_function_that_is_async_reads_the_row(own: str) -> None:
    found = compared(f"{own}:awaited", ["a", "b", "c"], {"best": "b"})
    assert [one.verdict.score for one in found] == [0.25, 1.0, 0.25]
    assert found[1].verdict.reason == "2 of 2 pairs won\nwon\nwon"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("fails", "raised ValueError: no such word .*own_comparisons.py:[0-9]+"),
        ("forgets", "returned None: is a `return` missing"),
        ("not_a_number", "returned nan"),
    ],
)
def test_what_does_not_say_which_is_better_is_a_failure(own: str, name: str, says: str) -> None:
    with pytest.raises(RewardError, match=says):
        compared(f"{own}:{name}", ["a", "b"])


def test_one_that_hangs_is_given_up(own: str) -> None:
    with pytest.raises(OverdueError, match="hangs` took longer than"):
        compared(f"{own}:hangs", ["a", "b"], seconds=0.05)


def test_it_takes_two_replies_and_a_row(own: str) -> None:
    with pytest.raises(CodeError, match="does not take three arguments, two replies and the row"):
        compared(f"{own}:of_two", ["a", "b"])
