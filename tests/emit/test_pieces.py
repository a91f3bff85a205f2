"""The pieces of scripts that stand for something else than what rlc does."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from rlc.data import Grader

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("name", ["math", "cookbook_math"])
@pytest.mark.parametrize(
    ("reply", "gold"),
    [
        ("It is \\boxed{4}", "4"),
        ("It is \\boxed{04}", "4"),
        ("It is \\boxed{\\frac{1}{2}}", "0.5"),
        ("It is \\boxed{x + 1}", "1 + x"),
        ("It is \\boxed{5}", "4"),
        ("It is 4", "4"),
        ("<answer>4</answer>", "4"),
        ("\\boxed{}", "4"),
    ],
)
def test_answers_are_graded_as_in_a_run(name: str, reply: str, gold: str) -> None:
    from rlc.emit.pieces import grading

    piece: Any = getattr(grading, f"graded_{name}")
    assert piece(reply, gold) == Grader(name, "answer")(reply, {"answer": gold})


def test_waves_end_once_as_many_replies_are_lost_as_turns_are_due(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of four episodes one has a turn, and the others lose a reply each."""

    from rlc.emit.pieces import rollouts
    from rlc.emit.pieces.records import Env, Episode, Turn

    class Failing:
        asked = 0

        async def play(self, env: Env, number: int) -> list[Episode]:
            self.asked += 1
            turn = Turn([1], [2], [0.0], 1.0)
            return [Episode(env.name, number, [] if number % 4 else [turn])]

    player: Any = Failing()
    env: Any = SimpleNamespace(name="one")
    monkeypatch.setattr(rollouts, "TURNS", 12)
    monkeypatch.setattr(rollouts, "PARALLEL", 4)
    played = asyncio.run(rollouts.play_turns(player, [env], {"one": 0}))
    assert (len(played), player.asked) == (4, 16)


def test_a_budget_ends_before_the_step_that_would_exceed_it() -> None:
    from rlc.emit.pieces.training import Budget

    used, spent = Counter[str](), []
    budget = Budget(usd=2.5, prices={"sampled": 1e6}, tokens=100)
    for _ in range(4):
        used["sampled"] += 1  # a dollar
        spent.append(budget.is_spent(used))
    assert spent == [False, True, True, True]
    assert Budget(tokens=100).is_spent(Counter(sampled=60))
    assert not Budget(tokens=120).is_spent(Counter(sampled=60))
