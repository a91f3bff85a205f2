"""The pages of the site as Markdown: those of ``docs/``, and the generated ones.

A page of ``docs/`` keeps its path, but the README.md of a folder becomes its ``index.md``, and that
of ``docs/`` itself ``guides.md``. A folder's page lists its pages in the order of its links; what
it does not link follows by name, and a folder without a README.md has a list of all. So one text is
the page on GitHub and the navigation of the site.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.docs.markdown import GITHUB, links, page, summary_of, title_of, with_links
from tools.docs.reference import reference_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

EXTRA = DOCS / "_extra"  # what other scripts have built, which the site has as it is

# The navigation, by title: each is a folder or a page. What is not there is left out.
SECTIONS = {
    "tutorial": "Tutorial",
    "howto": "How to",
    "explanation": "Explanations",
    "guides": "Guides",
    "reference": "Reference",
    "gallery": "Gallery",
    "playground": "Playground",
    "decisions": "Decisions",
    "changelog": "Changelog",
}
_ELSEWHERE = {"CHANGELOG.md": "changelog.md"}  # pages of the site that are not in docs/


def pages() -> dict[str, str]:
    """Return the text of every page by its path in the site."""
    texts = {site_path(path): _read(path) for path in _written()}
    apart = ("index.md", *_ELSEWHERE.values())
    texts |= reference_pages({path: text for path, text in texts.items() if path not in apart})
    for section, title in SECTIONS.items():
        own, inside = f"{section}/index.md", [p for p in texts if p.startswith(f"{section}/")]
        if inside and own not in texts:
            texts[own] = _contents(title, {posixpath.relpath(p, section): texts[p] for p in inside})
    return {path: _with_navigation(path, text, texts) for path, text in sorted(texts.items())}


def assets() -> Iterator[Path]:
    """Yield what there is in ``docs/`` beside pages, which the site has at the same place."""
    for path in sorted(DOCS.rglob("*")):
        parts = path.relative_to(DOCS).parts
        beside = path.suffix not in (".md", ".py") and not parts[0].startswith("_")
        if path.is_file() and beside and not any(part.startswith((".", "__")) for part in parts):
            yield path


def site_path(path: str) -> str:
    """Return where the site has a page of the repository."""
    if path in _ELSEWHERE:
        return _ELSEWHERE[path]
    inside = path.removeprefix("docs/")
    if inside == "README.md":
        return "guides.md"
    return re.sub(r"/README\.md$", "/index.md", inside)


def _written() -> list[str]:
    """The pages that people write, as paths in the repository."""
    inside = [path.relative_to(ROOT).as_posix() for path in sorted(DOCS.rglob("*.md"))]
    return [*inside, *_ELSEWHERE]


def _read(path: str) -> str:
    text = with_links((ROOT / path).read_text("utf-8"), lambda link: target_of(link, path))
    built = f"{Path(path).stem}/index.html"
    if not (EXTRA / built).is_file():
        return text
    title, summary, rest = text.split("\n\n", 2)
    link = f'<a href="{built}">Open the {title_of(text).lower()}</a>'
    return page(title, summary, link, rest)


def target_of(link: str, at: str) -> str:
    """Where a link of a page leads in the site: to a page of it, or to a file on GitHub."""
    if re.match(r"[a-z]+:|#|/", link):
        return link
    path, mark, fragment = link.partition("#")
    to = posixpath.normpath(posixpath.join(posixpath.dirname(at), path))
    if (ROOT / to / "README.md").is_file() and to.startswith("docs"):
        to = f"{to}/README.md"
    if to.startswith("docs/") or to in _ELSEWHERE:
        start = posixpath.dirname(site_path(at)) or "."
        return posixpath.relpath(site_path(to), start) + mark + fragment
    return f"{GITHUB}{to}{mark}{fragment}"


def _contents(title: str, texts: Mapping[str, str]) -> str:
    """The page of a folder that has none of its own: its pages, each with its first sentence."""
    lines = [f"- [{title_of(text)}]({path}): {summary_of(text)}" for path, text in texts.items()]
    return page(f"# {title}", "\n".join(lines))


def _with_navigation(path: str, text: str, all: Mapping[str, str]) -> str:
    """A page with the pages under it, which the side of the site lists."""
    below = _below(path, all)
    if not below:
        return text
    start = posixpath.dirname(path) or "."
    entries = [posixpath.relpath(name, start).removesuffix(".md") for name in below]
    tree = "\n".join(["```{toctree}", ":hidden:", "", *entries, "```"])
    return page(text, tree)


def _below(path: str, all: Mapping[str, str]) -> list[str]:
    folder, name = posixpath.split(path)
    if path == "index.md":
        names = [f"{section}{end}" for section in SECTIONS for end in (".md", "/index.md")]
        return [name for name in names if name in all]
    if path == "guides.md":
        apart = {"index.md", *(f"{section}.md" for section in SECTIONS)}
        under = [other for other in all if "/" not in other and other not in apart]
    elif name == "index.md":
        pages = (other for other in all if posixpath.dirname(other) == folder and other != path)
        folders = (other for other in all if re.fullmatch(rf"{folder}/[^/]+/index\.md", other))
        under = [*pages, *folders]
    else:
        return []
    to = [
        posixpath.normpath(posixpath.join(folder, link.split("#")[0])) for link in links(all[path])
    ]
    place = {name: at for at, name in reversed(list(enumerate(to)))}
    return sorted(under, key=lambda name: (place.get(name, len(to)), name))
