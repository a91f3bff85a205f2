"""Process rewards: what parts of a reply earn, each by where it ends and its reward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rlc.data.errors import DataError

STEPS = "steps"  # what a function of the user's own calls them
Steps = Sequence[tuple[int, float]]


def as_number(value: Any) -> float | None:
    """Return a number, a boolean or a scalar of an array library as a float; None for others."""
    try:
        plain = value.item() if hasattr(value, "item") else value
        return float(plain) if isinstance(plain, bool | int | float) else None
    except (ValueError, RuntimeError, OverflowError):  # an array of several; 10**400
        return None


def read_steps(given: Any, length: int | None = None) -> Steps:
    """Return process rewards as plain numbers: for each part how many characters of the reply there
    are up to its end, and its reward.

    Raise DataError for what is no list of such pairs, for an end outside of a reply of ``length``
    characters, and for a reward that is not finite.
    """
    found = list[tuple[int, float]]()
    if not isinstance(given, list | tuple):
        raise DataError(f"`{STEPS}` is a {type(given).__name__}, not a list of pairs")
    for pair in given:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise DataError(f"{pair!r} in `{STEPS}` is not a pair of an end and a reward")
        end, reward = map(as_number, pair)
        if end is None or isinstance(pair[0], bool) or not end.is_integer() or end < 1:
            what = "where a part ends is a whole number, from 1"
            raise DataError(f"{pair[0]!r} in `{STEPS}`: {what}")
        if length is not None and end > length:
            raise DataError(
                f"a part ends at {end:g} in `{STEPS}`, and the reply has {length:,} characters"
            )
        if reward is None or not math.isfinite(reward):
            raise DataError(f"{pair[1]!r} in `{STEPS}` is not a finite number")
        found.append((int(end), reward))
    return found


def joined_steps(one: Steps | None, other: Steps | None) -> Steps | None:
    """Return the process rewards of two graders together."""
    return other if one is None else one if other is None else [*one, *other]


def step_rewards(tokens: Sequence[int], text: str, steps: Steps, tokenizer: Any) -> list[float]:
    """Return what each of the tokens of a reply earns: the rewards of the parts whose last
    character is the token's. Raise DataError if the text is not in what the tokens are."""
    found = [0.0] * len(tokens)
    if not steps:
        return found
    whole = tokenizer.decode(tokens)
    start = whole.rfind(text)  # after what was thought, which is no part of it
    if start < 0:
        raise DataError(f"the text {text[:40]!r} is not in the reply that was sampled")
    low = 0
    for end, reward in sorted(steps):
        high = len(tokens)
        while low < high:  # the first token that the text is complete with
            middle = (low + high) // 2
            reached = tokenizer.decode(tokens[: middle + 1]).startswith(whole[: start + end])
            low, high = (low, middle) if reached else (middle + 1, high)
        found[min(low, len(tokens) - 1)] += reward
    return found
