"""Lists of words full of one letter: an environment of verifiers, for `verifiers.rl`.

A package of the Environments Hub is written the same: a module with `load_environment`.
"""

from __future__ import annotations

from typing import Any

import verifiers as vf
from datasets import Dataset


def letters(completion: list[Any], answer: str) -> float:
    """The share of the last reply that is the letter; nothing for a reply of one letter."""
    word = str(completion[-1]["content"]).strip().lower()
    return word.count(answer) / len(word) if len(word) > 1 else 0.0


def brief(completion: list[Any]) -> float:
    return float(len(str(completion[-1]["content"])) <= 12)


class Words(vf.MultiTurnEnv):
    """The same letter twice: the second word is the one that counts."""

    async def env_response(self, _: vf.Messages, state: vf.State) -> vf.Messages:
        return [vf.UserMessage(content=f"Another one, full of {state['answer']}.")]


def load_environment(alphabet: str = "aeiou", turns: int = 2) -> vf.Environment:
    """Called by rlc with the `args` of the recipe."""
    question = "Reply with a word that is full of the letter {}."
    tasks = {"question": [question.format(one) for one in alphabet], "answer": [*alphabet]}
    rubric = vf.Rubric(funcs=[letters, brief], weights=[1.0, 0.1])
    return Words(dataset=Dataset.from_dict(tasks), rubric=rubric, max_turns=turns)
