"""The environment of recipe.rl: two questions, each for a word full of a letter.

`make` is called with the `args` of the recipe and returns a source of episodes. An episode has what
the model sees `first`, and plays a reply in `step`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rlc.envs import EnvError, Observation


class Episode:
    """A question for each of the letters; a reply is worth its share of the letter."""

    def __init__(self, letters: Sequence[str]) -> None:
        self.letters = list(letters)
        self.first = Observation(self._question())

    def step(self, action: str) -> Observation:
        word, letter = action.strip().lower(), self.letters.pop(0)
        reward = word.count(letter) / len(word) if len(word) > 1 else 0.0
        if self.letters:
            return Observation(self._question(), reward=reward)
        return Observation("", reward=reward, done=True)

    def _question(self) -> str:
        return f"Reply with a word that is full of the letter {self.letters[0]}."


class Source:
    """Draws letters from the seed of a task, the same for all members of its group."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def group(self, seed: int, size: int) -> list[Episode]:
        drawn = random.Random(seed).sample(self.letters, 2)  # not from the global generator
        return [Episode(drawn) for _ in range(size)]


def make(letters: str) -> Source:
    """Return the source for the `args` of the recipe."""
    if len(set(letters)) < 2 or not letters.isalpha():
        raise EnvError(f"`letters` must be two letters or more, and {letters!r} is not")
    return Source(letters)
