"""The pages of `rlc explain CODE`, one for each diagnostic code, in the Markdown files beside this.

A page has the same parts in the same order: its code and title, what the code means, `## Why it
matters`, `## Wrong` and `## Right` with an example each. An example in `rl` is a recipe or a part
of one: `…` in a block stands for its other fields; `policy`, `guess` and `main` are declared as in
the quickstart where an example does not do so itself. One in `sh` is a command.
"""

from __future__ import annotations

import os
import re
import textwrap

from rlc.lang.codes import code_titles
from rlc.lang.render import Paint
from rlc.records import frozen

_PAGE = re.compile(
    r"# (?P<code>RL[0-9]{4}): (?P<title>.+?)\n\n(?P<meaning>.+?)\n\n"
    r"## Why it matters\n\n(?P<why>.+?)\n\n"
    r"## Wrong\n\n```(?P<wrong_language>rl|sh|toml)\n(?P<wrong>.+?)```\n\n"
    r"## Right\n\n```(?P<right_language>rl|sh|toml)\n(?P<right>.+?)```\n",
    re.DOTALL,
)
_WIDTH = 88


@frozen
class Example:
    """A recipe, or a part of one (``rl``), a command (``sh``), or settings (``toml``)."""

    language: str
    text: str


@frozen
class CodePage:
    """The meaning of a code, why it matters, and an example of the mistake and its correction."""

    code: str
    title: str
    meaning: str
    why: str
    wrong: Example
    right: Example


def page(code: str) -> CodePage | None:
    """Return the page of a code, in upper or lower case; None if there is no such code.

    Raise ValueError if a part of the page is missing.
    """
    code = code.upper()
    if code not in code_titles():
        return None
    path = os.path.join(os.path.dirname(__file__), f"{code}.md")
    with open(path, encoding="utf-8") as file:
        match = _PAGE.fullmatch(file.read())
    if match is None or match["code"] != code:
        raise ValueError(f"{path} does not have the parts of a page")
    wrong = Example(match["wrong_language"], match["wrong"])
    right = Example(match["right_language"], match["right"])
    return CodePage(code, match["title"], match["meaning"], match["why"], wrong, right)


def render_page(page: CodePage, color: bool) -> str:
    """Return the page as text for a terminal."""
    paint = Paint(color)

    def example(title: str, shown: Example, color: str) -> list[str]:
        return [paint(title, color, "1"), "", textwrap.indent(shown.text.rstrip(), "    "), ""]

    return "\n".join(
        [
            *(paint.title(f"{page.code}: {page.title}"), "", _wrapped(page.meaning), ""),
            *(paint.title("Why it matters"), "", _wrapped(page.why), ""),
            *example("Wrong", page.wrong, "31"),
            *example("Right", page.right, "32"),
        ]
    )


def _wrapped(text: str) -> str:
    return "\n\n".join(textwrap.fill(part, _WIDTH) for part in text.split("\n\n"))
