"""A proposer of sums and those who solve them: a game, for `proposer_solver.rl`."""

from __future__ import annotations

import re

_SUM = re.compile(r"\d{1,3}(?: ?[-+*] ?\d{1,3}){1,6}")


class Riddle:
    """The proposer writes a sum, and each solver its result. A solver is paid for being right; the
    proposer if some solvers are and others are not, most if half of them are."""

    def __init__(self, seed: int, solvers: int = 4) -> None:
        self.asked = f"Write one sum with the signs + - * of numbers up to 999, number {seed % 97}."
        self.solvers = solvers
        self.sum = ""
        self.replies = list[str]()
        self.seat: int | None = 0
        self.rewards: list[float] = []
        self.metrics: list[dict[str, float]] = []
        self.winners = ()  # nobody plays against anybody

    def observe(self, seat: int) -> str:
        return f"What is {self.sum}? Reply with the number alone." if seat else self.asked

    def step(self, seat: int, action: str) -> None:
        if seat == 0:
            found = _SUM.fullmatch(action.strip())
            self.sum = found[0] if found else ""
        else:
            self.replies.append(action.strip())
        if self.sum and seat < self.solvers:
            self.seat = seat + 1
            return
        self.seat = None
        right = [float(reply == str(result(self.sum))) for reply in self.replies]
        share = sum(right) / self.solvers
        hard = 1 - abs(2 * share - 1) if self.sum else -1.0
        self.rewards = [hard, *right, *[0.0] * (self.solvers - len(right))]
        own = [{"correct": value} for value in self.rewards[1:]]
        self.metrics = [{"valid": float(bool(self.sum)), "solved": share}, *own]


def result(text: str) -> int:
    """The value of a sum, products first."""
    terms = re.findall(r"([-+]?)\s*(\d+(?: ?\* ?\d+)*)", text)
    total = 0
    for sign, product in terms:
        value = 1
        for factor in product.split("*"):
            value *= int(factor)
        total += -value if sign == "-" else value
    return total
