"""Replies to one task, compared: equal ones once, and pairs in both orders, whoever compares."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import combinations, permutations
from random import Random
from typing import Any

from attrs import define, field, frozen

from rlc.chat import Verdict
from rlc.data import (
    Code,
    RewardError,
    as_number,
    explained,
    load_attribute,
    require_fits,
    signature_of,
)
from rlc.envs.concurrency import all_of
from rlc.envs.deadlines import Deadline
from rlc.envs.judges import questions
from rlc.envs.workers.threads import ThreadWorkers
from rlc.plan import ComparerPlan, JudgePlan

FIRST, TIE, SECOND = 1.0, 0.5, 0.0  # which of two is better
_SHARES = {1.0: "won", 0.0: "lost"}
_SHOWN = 60

Row = Mapping[str, Any]
Found = list[tuple[float, str]]  # of each reply a score from 0 to 1, and why


@frozen
class ComparisonVerdict:
    """A verdict, and the parts of the reward that come of it, by name: weight and value."""

    verdict: Verdict
    parts: Mapping[str, tuple[float, float]]

    @property
    def reward(self) -> float:
        return sum(weight * value for weight, value in self.parts.values())


async def compared(
    judge: JudgePlan | ComparerPlan,
    replies: Sequence[str],
    order: Random,
    by: Callable[[list[str]], Awaitable[Found]],
) -> list[ComparisonVerdict]:
    """Compare replies ``by`` what says of different ones how good each is. Equal replies are shown
    once, and share their score; ``order`` decides in which order they are shown."""
    different = list(dict.fromkeys(replies))
    order.shuffle(different)
    alone = len(different) == 1
    found = [(TIE, "all replies are the same")] if alone else await by(different)
    scores = dict(zip(different, found, strict=True))
    return [
        ComparisonVerdict(Verdict(judge.name, score, reason), {judge.name: (judge.weight, score)})
        for score, reason in map(scores.__getitem__, replies)
    ]


async def tournament(
    count: int, first_is_better: Callable[[int, int], Coroutine[Any, Any, tuple[float, str]]]
) -> Found:
    """Let each pair of ``count`` meet in both orders. Who wins both has won; all else is a tie.
    Return the share of the others that each has beaten, a tie counting half."""
    orders = list(permutations(range(count), 2))
    verdicts = await all_of(first_is_better(*pair) for pair in orders)
    of = dict(zip(orders, verdicts, strict=True))
    wins = [0.0] * count
    reasons: list[list[str]] = [[] for _ in range(count)]
    for one, other in combinations(range(count), 2):
        (there, why), (back, again) = of[one, other], of[other, one]
        won = there if there + back == 1.0 and there != TIE else TIE
        said = f": {why} | {again}" if why or again else ""
        for player, share in ((one, won), (other, 1.0 - won)):
            wins[player] += share
            reasons[player].append(f"{_SHARES.get(share, 'tie')}{said}")
    others = count - 1
    return [
        (won / others, questions.shortened(f"{won:g} of {others} pairs won\n" + "\n".join(each)))
        for won, each in zip(wins, reasons, strict=True)
    ]


@define(eq=False)
class OwnComparer:
    """A function of the user's own that says which of two replies is better: a number above 0 for
    the first, below 0 for the second, 0 for a tie, or whether it is the first. It may be ``async``;
    others are called in threads, for up to ``seconds`` each (None: without a limit).

    Raise DataError if it is not found, or does not take two replies and a row.
    """

    plan: ComparerPlan
    seconds: float | None
    _function: Any = field(init=False)
    _threads: ThreadWorkers = field(factory=ThreadWorkers, init=False)

    def __attrs_post_init__(self) -> None:
        target = self.plan.function
        self._function = load_attribute(target)
        require_fits(Code(target, "comparison"), signature_of(self._function))

    async def compare(
        self, _task: str, replies: Sequence[str], row: Row | None, order: Random
    ) -> list[ComparisonVerdict]:
        """Judge replies to one task against each other, in pairs."""

        async def by(different: list[str]) -> Found:
            return await tournament(
                len(different),
                lambda one, other: self._better(different[one], different[other], row or {}),
            )

        return await compared(self.plan, replies, order, by)

    async def _better(self, one: str, other: str, row: Row) -> tuple[float, str]:
        target, arguments = self.plan.function, (one, other, dict(row))
        called = type(self._function).__call__  # of an object that is called
        async with Deadline(self.seconds, f"`{target}`"):
            try:
                if any(map(inspect.iscoroutinefunction, (self._function, called))):
                    said = await self._function(*arguments)
                else:
                    said = await self._threads.call(self._function, *arguments)
            except (Exception, SystemExit) as error:
                raise RewardError(f"`{target}` raised {explained(error)}") from error
        number = as_number(said)
        if number is None or number != number:
            what = "None: is a `return` missing?" if said is None else repr(said)[:_SHOWN]
            raise RewardError(
                f"`{target}` returned {what}",
                "a number above 0 if the first reply is better, below 0 if the second is, else 0",
            )
        if isinstance(said, bool):
            return (FIRST if said else SECOND), ""
        return (FIRST if number > 0 else SECOND if number < 0 else TIE), ""
