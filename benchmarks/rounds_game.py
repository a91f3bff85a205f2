"""A game of several turns, as each side of `benchmarks/multi_turn_loops.py` plays it: which digit
is meant? It ends with the right one, or after eight."""

from __future__ import annotations

from attrs import define, field, frozen

ROUNDS, DIGITS = 8, 3


@define
class Rounds:
    """What is said, in words; ``number`` is that of the task."""

    number: int
    turn: int = 0

    @property
    def first(self) -> str:
        return f"Task {self.number}: is it 0, 1 or 2?"

    def said(self, reply: str) -> tuple[str, float, bool]:
        """Return what is said to a reply, its reward, and whether that was all."""
        self.turn += 1
        is_right = reply.strip() == str(self.number % DIGITS)
        text = f"That was turn {self.turn}. Is it 0, 1 or 2?"
        return text, float(is_right) / self.turn, is_right or self.turn == ROUNDS


def make() -> Source:
    """Return rlc's source of it."""
    return Source()


@frozen
class Source:
    def numbered(self, order: int, number: int, size: int) -> list[Episode]:  # noqa: ARG002
        return [Episode(Rounds(number)) for _ in range(size)]


@define
class Episode:
    game: Rounds
    first: object = field(init=False)

    def __attrs_post_init__(self) -> None:
        from rlc.chat.turns import Observation

        self.first = Observation(self.game.first)

    def step(self, action: str) -> object:
        from rlc.chat.turns import Observation

        return Observation(*self.game.said(action))
