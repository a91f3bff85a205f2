"""Prompt templates: the whole text of a one-shot prompt, by name or from a jinja2 file.

Templates with a name have the wording of the low-level loop in GEM's guide, so that a run can be
compared with its published curves.
"""

from __future__ import annotations

from collections.abc import Callable

from rlc.catalog.builtins.wrappers import OBSERVED
from rlc.data.templates import read_template

Template = Callable[[str], str]

_REASON = "Please reason step by step, and put your final answer within \\boxed{}."
TEMPLATE_FILES = (".j2", ".jinja")


def _chatml(user: str) -> str:
    return f"<|im_start|>user\n{user}\n{_REASON}<|im_end|>\n<|im_start|>assistant\n"


_TEMPLATES = {
    "no": "{observation}",
    "qwen3_general": _chatml("Question: {observation}"),
    "qwen3_game": _chatml(
        "You are playing language games. Make valid actions to win.\nObservation: {observation}"
    ),
}


def load_template(name: str) -> Template:
    """A template by name, or a jinja2 file that contains ``{{ observation }}``. Raise DataError for
    a file that is not such a template."""
    if name.endswith(TEMPLATE_FILES):
        template = read_template(name, OBSERVED)
        return lambda observation: template(observation=observation)
    text = _TEMPLATES[name]
    return lambda observation: text.replace("{observation}", observation)
