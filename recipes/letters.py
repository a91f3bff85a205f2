"""Words full of one letter: an environment of one's own, for `python_environment.rl`."""

from __future__ import annotations

import random

from rlc.envs.base import EnvError, Observation


class Word:
    """One question. ``first`` asks it, and the first reply answers it."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self.first = Observation(f"Reply with a word that is full of the letter {letter}.")

    def step(self, action: str) -> Observation:
        """The share of the reply that is the letter; nothing for a reply of one letter."""
        word = action.strip().lower()
        share = word.count(self.letter) / len(word) if len(word) > 1 else 0.0
        return Observation("", reward=share, done=True, metrics={"letters": len(word)})


class Words:
    """Questions, each drawn from the seed of its task."""

    def __init__(self, letters: str) -> None:
        self.letters = letters

    def group(self, seed: int, size: int) -> list[Word]:
        """The same letter for all members of a group."""
        letter = random.Random(seed).choice(self.letters)  # not from the global generator
        return [Word(letter) for _ in range(size)]


def make(letters: str) -> Words:
    """Called by rlc with the `args` of the recipe."""
    if not letters.isalpha():
        raise EnvError(f"`letters` must be letters, and {letters!r} is not")
    return Words(letters.lower())
