"""A tug of war with words between two players: a game of one's own, for `self_play.rl`."""

from __future__ import annotations

import random


class TugOfWar:
    """In each round both players reply with a word, and the word with the larger share of a letter
    pulls the rope. Whoever has pulled more often in the end wins."""

    def __init__(self, seed: int, rounds: int = 2, letters: str = "e") -> None:
        self.letter = random.Random(seed).choice(letters)  # not from the global generator
        self.rounds = rounds
        self.seat: int | None = 0
        self.shares = list[float]()
        self.rope = 0  # rounds that the first player has won, less those that the second has
        self.rewards = (0.0, 0.0)

    def observe(self, seat: int) -> str:  # noqa: ARG002  (both are asked the same)
        return f"Reply with a word that is full of the letter {self.letter}."

    def step(self, seat: int, action: str) -> None:
        word = action.strip().lower()
        self.shares.append(word.count(self.letter) / len(word) if len(word) > 1 else 0.0)
        self.seat = 1 - seat
        if len(self.shares) % 2 == 0:  # both have replied
            first, second = self.shares[-2:]
            self.rope += (first > second) - (first < second)
        if len(self.shares) == 2 * self.rounds:
            self.seat = None
            won = (self.rope > 0) - (self.rope < 0)
            self.rewards = (float(won), float(-won))
