"""Where a name is declared, where it is used, and what else it can be called."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from rlc.catalog import is_taken
from rlc.check import NamedDecl, Note
from rlc.lang import string_value, vocabulary
from rlc.lsp.documents import Chunk, Document, Documents, TextRange


class NameUse(NamedTuple):
    """What a name stands for: a declaration, or what is local to the one that ``decl`` is."""

    name: str
    decl: NamedDecl
    is_local: bool = False


def note_at(documents: Documents, document: Document, offset: int) -> Note | None:
    """Return what is noted on the word at an offset, or just before it; None if nothing is."""
    chunk = document.chunk_at(offset)
    at = _touching(documents, document, chunk, offset)
    if at is None and chunk.start == offset > 0:
        at = _touching(documents, document, document.chunk_at(offset - 1), offset)
    return at


def _touching(documents: Documents, document: Document, chunk: Chunk, offset: int) -> Note | None:
    found = documents.notes(document, [chunk])[0]
    return max((n for n in found if n.start <= offset <= n.end), key=_start, default=None)


def _start(note: Note) -> int:
    return note.start


def name_at(documents: Documents, document: Document, offset: int) -> NameUse | None:
    """Return what the name at an offset stands for; None if no name of the author's is there."""
    at = note_at(documents, document, offset)
    return None if at is None else _name_of(at, document)


def _name_of(at: Note, document: Document) -> NameUse | None:
    if at.role in ("declares", "reference") and isinstance(at.what, NamedDecl):
        return NameUse(at.what.name.id, at.what)
    if at.role in ("parameter", "local"):
        chunk = document.chunk_at(at.start)
        for decl in chunk.decls:
            inside = decl.span.start <= at.start - chunk.start < decl.span.end
            if inside and isinstance(decl, NamedDecl):
                return NameUse(document.source.text[at.start : at.end], decl, is_local=True)
    return None


def definition(documents: Documents, document: Document, offset: int) -> TextRange | None:
    """Return where what stands at an offset is declared: a name, an imported file, a file that is
    named, or a function in it."""
    at = note_at(documents, document, offset)
    if at is None:
        return None
    if at.role in ("path", "literal"):
        return _file(documents, document, at)
    name = _name_of(at, document)
    if name is None:
        return None
    if not name.is_local:
        return documents.place_of(name.decl)
    return next(uses_within(documents, document, name), None)


def _file(documents: Documents, document: Document, at: Note) -> TextRange | None:
    text = string_value(document.source.text[at.start : at.end])
    if at.role == "literal" and (at.want is None or at.want.file is False):
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
    return TextRange(other, start, end)


def uses(documents: Documents, document: Document, name: NameUse) -> list[TextRange]:
    """Return every place where a name stands, its declaration among them: of a declaration in all
    texts of the project that see it."""
    if name.is_local:
        return list(uses_within(documents, document, name))
    texts = (document, documents.get(name.decl.span.source.name), *documents.project())
    by_path = {each.path: each for each in texts if each is not None}
    return [place for each in by_path.values() for place in uses_within(documents, each, name)]


def uses_within(documents: Documents, document: Document, name: NameUse) -> Iterator[TextRange]:
    """Yield the places of one text where a name stands."""
    chunks = [chunk for chunk in document.chunks if name.name in chunk.source.text]
    for at in documents.notes(document, chunks)[0] if chunks else ():
        other = _name_of(at, document)
        if other is None or other.name != name.name or other.is_local != name.is_local:
            continue
        if other.decl.name.span == name.decl.name.span:
            yield TextRange(document, at.start, at.end)


def why_not(documents: Documents, document: Document, name: NameUse, new: str) -> str | None:
    """Return why a name cannot be replaced by another one; None if it can."""
    tables = vocabulary()
    if not re.fullmatch(tables.terminals["NAME"], new) or new in tables.keywords:
        return f"`{new}` is not a name"
    if not name.is_local and is_taken(new):
        return f"`{new}` is the name of a builtin"
    for place in uses(documents, document, name):
        if new in documents.scope(place.document) or new in _locals(documents, place):
            return f"`{new}` is declared already"
    return None


def _locals(documents: Documents, place: TextRange) -> set[str]:
    """The parameters of the declaration that a place is in, and the parts of a loss."""
    chunk = place.document.chunk_at(place.start)
    notes = documents.notes(place.document, [chunk])[0]
    text = place.document.source.text
    return {text[at.start : at.end] for at in notes if at.role in ("parameter", "local")}
