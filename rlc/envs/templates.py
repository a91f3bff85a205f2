"""Prompt templates: the whole text of a one-shot prompt, by name or from a jinja2 file.

Templates with a name have the wording of the low-level loop in GEM's guide, so that a run can be
compared with its published curves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlc.envs.base import EnvError

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
    """A template by name, or a jinja2 file that contains ``{{ observation }}``. Raise EnvError for
    a file that is no such template."""
    if name.endswith(TEMPLATE_FILES):
        template = read_template(name, "observation")
        return lambda observation: template(observation=observation)
    text = _TEMPLATES[name]
    return lambda observation: text.replace("{observation}", observation)


def read_template(path: str, *variables: str) -> Callable[..., str]:
    """The template of a jinja2 file. Raise EnvError unless it uses exactly these variables."""
    from jinja2 import Environment, StrictUndefined, TemplateError, meta

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
        names = meta.find_undeclared_variables(environment.parse(text))
        template = environment.from_string(text)
    except (OSError, UnicodeDecodeError) as error:
        raise EnvError(f"cannot read the template {path}: {error}") from error
    except TemplateError as error:
        raise EnvError(f"{path} is no jinja2 template: {error}") from error
    if names != set(variables):
        needed = " and ".join(f"`{name}`" for name in variables)
        found = ", ".join(sorted(names)) or "none"
        plural = "s" if len(variables) > 1 else ""
        raise EnvError(
            f"{path} must use the variable{plural} {needed} and no other; found: {found}"
        )
    return template.render
