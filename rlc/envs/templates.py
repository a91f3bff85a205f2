"""Prompt templates by name: the whole text of a one-shot prompt, ChatML included.

The wording is what the GEM guide's low-level loop trains with, so that a run can be compared
with its published curves.
"""

from __future__ import annotations

_REASON = "Please reason step by step, and put your final answer within \\boxed{}."


def _chatml(user: str) -> str:
    return f"<|im_start|>user\n{user}\n{_REASON}<|im_end|>\n<|im_start|>assistant\n"


_TEMPLATES = {
    "no": "{observation}",
    "qwen3_general": _chatml("Question: {observation}"),
    "qwen3_game": _chatml(
        "You are playing language games. Make valid actions to win.\nObservation: {observation}"
    ),
}


def fill_template(name: str, observation: str) -> str:
    """The prompt text. Raises KeyError for a name that is not in the catalogue."""
    return _TEMPLATES[name].replace("{observation}", observation)
