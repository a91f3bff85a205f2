"""A page for each kind of builtins, with a part for each of them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.index import BUILTINS, KINDS, builtins_of
from rlc.catalog.records import Builtin
from rlc.catalog.search import entries, example_of
from rlc.explanation.entries import formulas_of
from rlc.lsp.describe import signature
from tools.docs.markdown import GITHUB, code, escaped, fenced, page, slug, table, title_of
from tools.docs.reference.params import FOLDER, kind_path, params_table

RECIPES = Path(__file__).parents[3] / "recipes"
_MOST = 5  # recipes, and pages, that a builtin links
_COLUMNS = 80  # of a signature on one line


def builtin_pages(guides: Mapping[str, str]) -> dict[str, str]:
    """Return the pages of all kinds, and one that lists them."""
    kinds = [kind for kind in KINDS if builtins_of(kind)]
    return {
        f"{FOLDER}/index.md": _index(kinds),
        **{f"{FOLDER}/{kind}.md": _kind_page(kind, guides) for kind in kinds},
    }


def _index(kinds: list[str]) -> str:
    rows = [
        (f"[{kind}]({kind}.md)", KINDS[kind].noun, ", ".join(map(_link, builtins_of(kind))))
        for kind in kinds
    ]
    return page(
        "# Builtins",
        f"Everything that a recipe can call, {len(BUILTINS)} in all, by the kind of what it makes. "
        "`rlc catalog NAME` shows the same in the terminal, and an editor where the pointer rests.",
        table(("kind", "what it is", "builtins"), rows),
    )


def _kind_page(kind: str, guides: Mapping[str, str]) -> str:
    at = f"{FOLDER}/{kind}.md"
    return page(
        f"# {kind}",
        f"{KINDS[kind].noun.capitalize()}, such as `{KINDS[kind].example}`.{_places(kind)}",
        *(part for item in builtins_of(kind) for part in _part(item, at, guides)),
    )


def _places(kind: str) -> str:
    """Where values of a kind stand: fields of declarations, and arguments."""
    fields = [
        f"[`{declaration.kind}`](../declarations.md#{slug(declaration.kind)})`.{param.name}`"
        for declaration in DECLARATIONS.values()
        for param in declaration.fields
        if kind in (param.type, param.also)
    ]
    arguments = [
        f"{_link(item)}`.{param.name}`"
        for item in BUILTINS
        for param in item.params
        if kind in (param.type, param.also)
    ]
    pipelines = [f"[{one.name}]({one.name}.md)" for one in KINDS.values() if one.step == kind]
    after = f" Stands after `|>` in a pipeline of kind {', '.join(pipelines)}." if pipelines else ""
    places = f" Stands as {', '.join([*fields, *arguments])}." if fields or arguments else ""
    return places + after


def _part(item: Builtin, at: str, guides: Mapping[str, str]) -> Iterator[str]:
    """Yield what a page says of a builtin."""
    yield f"## `{item.name}`"
    yield f"{escaped(item.doc[:1].upper() + item.doc[1:])}."
    if item.params:
        yield fenced(_signature(item), "rl")
    if formulas := _formulas()[item.kind, item.name]:
        yield fenced("\n".join(formulas))
    yield params_table(item.params, at)
    if item.more is not None:
        yield "It takes further arguments, which depend on the first."
    yield f"For example:\n\n{fenced(example_of(item), 'rl')}"
    if related := _related(item, guides):
        yield related


def _signature(item: Builtin) -> str:
    text, labels = signature(item.name, item.params)
    if len(text) <= _COLUMNS:
        return text
    return "\n".join([f"{item.name}(", *(f"  {label}," for label in labels), ")"])


@cache
def _formulas() -> Mapping[tuple[str, str], tuple[str, ...]]:
    return {(entry.kind, entry.name): formulas_of(entry) for entry in entries()}


def _related(item: Builtin, guides: Mapping[str, str]) -> str:
    """Builtins of the same name, pages that speak of it, recipes that use it, other names of it."""
    last = item.name.rpartition(".")[2]
    called = re.compile(rf"(?<![\w.]){re.escape(item.name)}\(")
    named = [b for b in BUILTINS if b.name.rpartition(".")[2] == last and b is not item]
    pages = [path for path, text in guides.items() if not item.word and called.search(text)]
    recipes = [name for name, text in _recipes().items() if not item.word and called.search(text)]
    said = {
        "Of the same name": [_link(b) for b in named],
        "Pages": [f"[{escaped(title_of(guides[p]))}](../../{p})" for p in pages[:_MOST]],
        "Recipes": [f"[{code(name)}]({GITHUB}recipes/{name})" for name in recipes[:_MOST]],
        "Elsewhere called": [code(name) for name in item.aliases.split()],
    }
    return "\n".join(f"- {what}: {', '.join(names)}" for what, names in said.items() if names)


@cache
def _recipes() -> Mapping[str, str]:
    paths = sorted(RECIPES.glob("*.rl"))
    return {path.name: path.read_text("utf-8") for path in paths}


def _link(item: Builtin) -> str:
    path = posixpath.basename(kind_path(item.kind) or "")
    return f"[`{item.name}`]({path}#{slug(item.name)})"
