"""The game of the first recipe without GEM, so that it runs on every Python: `GuessTheNumber` with
the rules, the texts and the draws of gem-llm 0.1.0 (Apache License 2.0, AxonRL Team)."""

from __future__ import annotations

import math
import re
from random import Random
from typing import Any

from attrs import define, field

from rlc.chat import EnvError, Observation
from rlc.envs.base import Episode
from rlc.seeds import derive_seed

_INVALID, _MALFORMED = 0.0, -0.1
_RULES = """\
You are playing Guess The Number.
You have to guess the number between {low} and {high} (inclusive) within {turns} turns.
As you enter your guess, the game will provide you with hints such as the target number is \
'higher' or 'lower'.
You may provide your response in any manner. Only the number that is wrapped inside \\boxed{{}} \
will be considered as your guess, for example, \\boxed{{{example}}}.
As you play, the history of your guesses will be appended below. Use the information to complete \
the game before you run out of guesses.
Enter your first guess to start the game."""


class GuessSource:
    """A :class:`rlc.envs.base.EnvSource` of games with the arguments of GEM's environment."""

    def __init__(self, env_id: str, args: dict[str, Any]) -> None:
        """Raise EnvError if there is no number to guess."""
        self._args = args
        try:
            _begin(0, **args)
        except ValueError as error:
            raise EnvError(f"`{env_id}` cannot be made: {error}") from error

    def group(self, seed: int, size: int) -> list[Episode]:
        begun = _begin(derive_seed(seed, "reset") % 2**32, **self._args)
        return [_Guess(*begun) for _ in range(size)]


def _begin(
    seed: int, min_number: int | None, max_number: int | None, max_turns: Any
) -> tuple[Observation, int, int, Any, int]:
    """Return what a game begins with: the rules, the range, the most turns and the number."""
    rng, low, high = Random(seed), min_number, max_number
    if low is None or high is None:
        low = rng.randint(1, 10)
        high = rng.randint(low + 5, low + 50)
        max_turns = math.ceil(math.sqrt(high - low)) + 1
    number = rng.randint(low, high)
    example = rng.randint(low, high)
    rules = _RULES.format(low=low, high=high, turns=max_turns, example=example)
    return _shown(rules), low, high, max_turns, number


def _shown(text: str, reward: float = 0.0, done: bool = False) -> Observation:
    return Observation(f"{text}\nEnter your next guess.", reward, done=done)


@define(eq=False)
class _Guess:
    first: Observation
    low: int
    high: int
    turns: int
    number: int
    _turn: int = field(default=0, init=False)
    _guessed: set[int] = field(factory=set, init=False)

    def step(self, action: str) -> Observation:
        self._turn += 1
        guess = _last_boxed(action)
        at = f"At turn {self._turn}, you"
        if not guess:
            return _shown(f"{at} did not provide a valid guess.", _MALFORMED, done=True)
        inside = self.low <= guess <= self.high
        if not inside:
            text = f"{at} guessed {guess}, which is outside the range specified."
        elif guess in self._guessed:
            text = f"{at} guessed {guess}, which has been already guessed before."
        elif guess == self.number:
            text = f"Congratulations! You guessed the correct number {guess} in {self._turn} turns."
            return _shown(text, 1.0, done=True)
        else:
            hint = "lower" if guess > self.number else "higher"
            text = f"{at} guessed {guess}, and the target number is {hint} than {guess}."
            self._guessed.add(guess)
        if self._turn < self.turns:
            return _shown(text, _INVALID)
        near = 1 - abs(guess - self.number) / (self.high - self.low) if inside else _INVALID
        return _shown("You have reached the maximum number of turns.", near, done=True)


def _last_boxed(text: str) -> int | None:
    try:
        return int(re.findall(r"\\boxed{(\d+)}", text)[-1])
    except (IndexError, ValueError):  # none, or one of thousands of digits
        return None
