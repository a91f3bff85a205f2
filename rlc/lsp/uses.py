"""Where a name is declared, where it is used, and what else it can be called."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from rlc.catalog.index import is_taken
from rlc.lang.words import string_value, vocabulary
from rlc.lsp.documents import Document, Documents
from rlc.lsp.frames import Meaning
from rlc.lsp.outline import Declared


class Place(NamedTuple):
    """A range of a text, in characters."""

    document: Document
    start: int
    end: int


class Name(NamedTuple):
    """What a name stands for: a declaration, or what is local to the one that starts at
    ``within``."""

    name: str
    decl: Declared | None
    path: str
    within: int = -1


def meaning_at(documents: Documents, document: Document, offset: int) -> Meaning | None:
    """Return the word at an offset, or just before it; None if there is none."""
    touching = [m for m in documents.reading(document).meanings if m.start <= offset <= m.end]
    return touching[-1] if touching else None


def name_at(documents: Documents, document: Document, offset: int) -> Name | None:
    """Return what the name at an offset stands for; None if no name of the author's is there."""
    at = meaning_at(documents, document, offset)
    return None if at is None else _name_of(at, document)


def _name_of(at: Meaning, document: Document) -> Name | None:
    text = document.source.text[at.start : at.end]
    if at.role in ("declares", "reference") and isinstance(at.what, Declared):
        return Name(text, at.what, at.what.source.name)
    if at.role in ("parameter", "local"):
        return Name(text, None, document.path, at.within)
    return None


def definition(documents: Documents, document: Document, offset: int) -> Place | None:
    """Return where what stands at an offset is declared: a name, an imported file, a file that is
    named, or a function in it."""
    at = meaning_at(documents, document, offset)
    if at is None:
        return None
    if at.role in ("path", "string"):
        return _file(documents, document, at)
    name = _name_of(at, document)
    if name is not None and name.decl is not None:
        other = documents.get(name.decl.source.name)
        return None if other is None else Place(other, name.decl.start, name.decl.end)
    return next(uses_within(documents, document, name), None) if name is not None else None


def _file(documents: Documents, document: Document, at: Meaning) -> Place | None:
    text = string_value(document.source.text[at.start : at.end])
    if at.role == "string" and (at.want is None or at.want.file is False):
        return None
    path, _, function = text.rpartition(":") if re.search(r"\.py:\w+$", text) else (text, "", "")
    whole = os.path.normpath(os.path.join(document.source.folder, os.path.expanduser(path)))
    other = documents.plain(whole)
    if other is None:
        return None
    written = re.escape(function)
    found = re.search(
        rf"^(?:async )?(?:def|class) +({written})\b|^({written}) *=", other.source.text, re.M
    )
    start, end = found.span(found.lastindex or 0) if function and found else (0, 0)
    return Place(other, start, end)


def uses(documents: Documents, document: Document, name: Name) -> list[Place]:
    """Return every place where a name stands, its declaration among them: of a declaration in all
    texts of the project that see it."""
    if name.decl is None:
        return list(uses_within(documents, document, name))
    texts = (document, documents.get(name.path), *documents.project())
    by_path = {each.path: each for each in texts if each is not None}
    return [place for each in by_path.values() for place in uses_within(documents, each, name)]


def uses_within(documents: Documents, document: Document, name: Name | None) -> Iterator[Place]:
    """Yield the places of one text where a name stands."""
    if name is None or name.name not in document.source.text:
        return
    for at in documents.reading(document).meanings:
        other = _name_of(at, document)
        if other is None or other.name != name.name:
            continue
        if name.decl is not None:
            same = other.decl is not None and other.decl.place == name.decl.place
        else:
            same = other.decl is None and (other.path, other.within) == (name.path, name.within)
        if same:
            yield Place(document, at.start, at.end)


def why_not(documents: Documents, document: Document, name: Name, new: str) -> str | None:
    """Return why a name cannot be replaced by another one; None if it can."""
    tables = vocabulary()
    if not re.fullmatch(tables.terminals["NAME"], new) or new in tables.keywords:
        return f"`{new}` is not a name"
    if name.decl is not None and is_taken(new):
        return f"`{new}` is the name of a builtin"
    for place in uses(documents, document, name):
        if (
            new in documents.scope(place.document)
            or new in documents.reading(place.document).locals
        ):
            return f"`{new}` is declared already"
    return None
