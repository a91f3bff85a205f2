"""The pages as plain Markdown, for programs and for people who read it: ``page.md`` beside each
``page.html``, ``llms.txt`` that lists them (https://llmstxt.org), ``llms-full.txt`` with all."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

from tools.docs.markdown import page, summary_of, title_of
from tools.docs.reference.api import plain_api_page
from tools.docs.sources import SECTIONS

_TREE = re.compile(r"^```\{toctree\}.*?^```\n?", re.DOTALL | re.MULTILINE)
_ORDER = list(SECTIONS)
_OPTIONAL = ("decisions", "changelog")  # what may be left out where room is short


def add_plain(site: Path, texts: Mapping[str, str]) -> None:
    """Write each page as Markdown beside its HTML, and the lists of them."""
    plain = {path: _TREE.sub("", text).rstrip() + "\n" for path, text in texts.items()}
    plain["reference/api.md"] = plain_api_page()
    for path, text in plain.items():
        (site / path).write_text(text, "utf-8")
    (site / "llms.txt").write_text(llms_text(plain), "utf-8")
    full = (f"<!-- {path} -->\n\n{plain[path]}" for path in _in_order(plain))
    (site / "llms-full.txt").write_text("\n".join(full), "utf-8")


def llms_text(texts: Mapping[str, str]) -> str:
    """Return llms.txt: the project in a sentence, then a list of links for each section."""
    sections: dict[str, list[str]] = {}
    for path in _in_order(texts):
        heading = _section(path)
        line = f"- [{title_of(texts[path])}]({path}): {summary_of(texts[path])}".rstrip(": ")
        sections.setdefault(heading, []).append(line)
    parts = [f"## {heading}\n\n" + "\n".join(lines) for heading, lines in sections.items()]
    return page("# rlc", f"> {summary_of(texts['index.md'])}.", *parts)


def _in_order(texts: Mapping[str, str]) -> list[str]:
    """All pages: the first one, those of each section, its own first."""
    return sorted(texts, key=lambda path: (_rank(path), posixpath.basename(path) != "index.md"))


def _rank(path: str) -> int:
    name = path.partition("/")[0].removesuffix(".md")
    return -1 if name == "index" else _ORDER.index(name if name in SECTIONS else "guides")


def _section(path: str) -> str:
    rank = _rank(path)
    if rank < 0:
        return "Start"
    return "Optional" if _ORDER[rank] in _OPTIONAL else SECTIONS[_ORDER[rank]]
