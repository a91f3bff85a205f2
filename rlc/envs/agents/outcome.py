"""What an agent gives at its end: a reward or an answer, and numbers about itself."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from rlc.data.grading.rewards import as_number
from rlc.envs.base import ContractError

REWARD, ANSWER = "reward", "answer"


@frozen
class Outcome:
    """``reward`` is None where something else rewards it, ``answer`` None where its last reply is
    one."""

    reward: float | None
    answer: str | None
    metrics: Mapping[str, float] = field(factory=dict)


def outcome_of(given: Any, who: str, graded: bool) -> Outcome:
    """Return what an agent has given.

    Args:
        given: its answer if it is ``graded``, else its reward; or a mapping with either by name,
            beside other numbers. None: its last reply is the answer.
        who: what it is called in messages.

    Raises:
        ContractError: it is anything else.
    """
    if not isinstance(given, Mapping):
        given = {} if given is None else {ANSWER if graded else REWARD: given}
    parts = dict(given)
    answer, reward = parts.pop(ANSWER, None), parts.pop(REWARD, None)
    if graded and reward is not None:
        raise ContractError(f"{who} gave a reward, and something else rewards it already")
    if not graded and reward is None:
        raise ContractError(
            f"{who} gave no reward, and no grader makes one of its answer",
            "let it return a number, or give the agent a `grader`",
        )
    named = {REWARD: reward} if reward is not None else {}
    numbers = {name: as_number(value) for name, value in {**named, **parts}.items()}
    for name, number in numbers.items():
        if not isinstance(name, str) or number is None:
            value = {**named, **parts}[name]
            raise ContractError(f"{who} gave a {type(value).__name__} as {name!r}, not a number")
    total = numbers.pop(REWARD, None)
    metrics = {name: number for name, number in numbers.items() if number is not None}
    return Outcome(total, None if answer is None else str(answer), metrics)


def written_outcome(text: str) -> Any:
    """Return what an agent has written, as JSON if it is any, else as a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()
