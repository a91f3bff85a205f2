"""Small parts of Markdown pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

GITHUB = "https://github.com/rlc-lang/rlc/blob/main/"

_LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; none if there are no rows."""
    heads = tuple(heads)
    lines = [[_cell(cell) for cell in row] for row in rows]
    if not lines:
        return ""
    rule = ["---"] * len(heads)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, rule, *lines))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def fenced(text: str, language: str = "text") -> str:
    """Return a block of code."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def code(text: str) -> str:
    return f"`{text}`"


def escaped(text: str) -> str:
    """Return plain text so that Markdown shows it as it is."""
    parts, end = [], 0
    for found in _CODE.finditer(text):
        parts += [_plain(text[end : found.start()]), found[0]]
        end = found.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return re.sub(r"([\\*_<>\[\]{}$])", r"\\\1", text)


def page(*parts: str) -> str:
    """Return a page of some parts, those left out that are empty."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def title_of(text: str) -> str:
    """Return the first heading of a page, without markup. Raise ValueError if it has none."""
    found = re.search(r"^# +(.+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError("a page without a title")
    return re.sub(r"[`*]", "", found[1]).strip()


def summary_of(text: str) -> str:
    """Return the first sentence of the first paragraph after the title, without links."""
    body = re.sub(
        r"^(```|:::).*?^\1$|^\(.*\)=$|<!--.*?-->", "", text, flags=re.DOTALL | re.MULTILINE
    )
    _, _, body = body.partition("\n# ") if not body.startswith("# ") else ("", "", body)
    paragraphs = [part.strip() for part in body.split("\n\n")[1:]]
    prose = next((part for part in paragraphs if re.match(r"[\w`\[*]", part)), "")
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.!?]) ", plain, maxsplit=1)[0].rstrip(":.")


def links(text: str) -> list[str]:
    """Return the targets of the links of a page, in their order."""
    found: list[str] = []

    def note(target: str) -> str:
        found.append(target)
        return target

    with_links(text, note)
    return found


def with_links(text: str, change: Callable[[str], str]) -> str:
    """Return a page with other targets of its links; what is code stays as it is."""
    lines, fence = [], ""
    for line in text.split("\n"):
        mark = re.match(r" *(`{3,}|~{3,}|:{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif fence and line.strip().startswith(fence):
            fence = ""
        elif not fence:
            line = _with_links(line, change)
        lines.append(line)
    return "\n".join(lines)


def _with_links(line: str, change: Callable[[str], str]) -> str:
    """Change a line; a link may have code as its text, but code has no links."""
    coded = [found.span() for found in _CODE.finditer(line)]

    def changed(found: re.Match[str]) -> str:
        if any(start < found.start() < end for start, end in coded):
            return found[0]
        return f"]({change(found[1])})"

    return _LINK.sub(changed, line)


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
