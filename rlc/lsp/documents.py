"""Texts as the editor has them, what the checker notes on them, and where their names are used.

Open texts are as they are typed, others as they are on the disk."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import islice
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from attrs import define, evolve, field

from rlc.catalog import DECLARATIONS, Param, is_taken
from rlc.check import Annotations, Annotator, Arguments, NamedDecl, Note, UnknownValue, is_made
from rlc.lang import (
    MAX_BYTES,
    BlockDecl,
    Decl,
    Diagnostics,
    ImportDecl,
    Name,
    Source,
    Span,
    ValueDecl,
    read_source,
    string_value,
    vocabulary,
)
from rlc.lang.syntax import parse

IMPORT = "import"
SUFFIX = ".rl"
MOST_FILES = 2_000  # of a project that are looked through for uses of a name
_NOT_OURS = {"node_modules", "venv", "__pycache__", "site-packages"}


class TextRange(NamedTuple):
    document: Document
    start: int
    end: int


@define(eq=False, slots=False)
class Chunk:
    """A part of a text that starts with a declaration, or with the comment above one. It is read
    alone: a mistake in it does not reach the next one, and after a change only the chunk that
    changed is read again. ``start`` is where it stands in the text of today."""

    source: Source
    decls: tuple[Decl, ...]
    start: int = 0
    _noted: tuple[object, Annotations] | None = field(default=None, init=False)

    @cached_property
    def heads(self) -> tuple[str, ...]:
        """What others see of its declarations, except the fields of blocks."""
        found = []
        for decl in (decl for decl in self.decls if isinstance(decl, NamedDecl)):
            start, end = decl.span.start, decl.span.end
            if isinstance(decl, BlockDecl) and decl.fields:
                end = decl.fields[0].span.start
            elif isinstance(decl, ValueDecl) and decl.kind.id != "param":
                end = decl.value.span.start
            found.append(decl.span.source.text[start:end])
        return tuple(found)

    @cached_property
    def is_own(self) -> bool:
        """Whether its notes depend only on itself and the heads of the others."""
        values = (decl for decl in self.decls if isinstance(decl, ValueDecl))
        return not any(decl.kind.id in DECLARATIONS and is_made(decl) for decl in values)

    def notes(self, annotator: Annotator, heads: object) -> Annotations:
        """Return the notes on it. ``heads`` are those of all chunks that it sees."""
        of = heads if self.is_own else annotator
        if self._noted is None or self._noted[0] != of:
            for decl in self.decls:
                annotator.annotate(decl)
            self._noted = of, annotator.notes.sources[self.source]
        return self._noted[1]


class Document:
    """A text. ``version`` is the editor's count of its changes; None for one of the disk.
    ``before``: the same one as it was, whose chunks are taken as far as they did not change."""

    def __init__(
        self, source: Source, version: int | None = None, before: Document | None = None
    ) -> None:
        self.source = source
        self.version = version
        self._before = before
        self._annotator: tuple[object, Annotator] | None = None

    @property
    def path(self) -> str:
        return self.source.name

    @cached_property
    def chunks(self) -> list[Chunk]:
        """Its parts, in order."""
        known: defaultdict[str, list[Chunk]] = defaultdict(list)
        for chunk in self._before.chunks if self._before is not None else ():
            known[chunk.source.text].append(chunk)
        self._before = None
        text = self.source.text
        starts = sorted({0, *(match.start() for match in _heads().finditer(text))})
        chunks = []
        for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
            if same := known[text[start:end]]:
                chunk = same.pop(0)
            else:
                source = Source(self.source.name, text[start:end], self.source.folder)
                decls = parse(source)[0].decls
                chunk = Chunk(source, (*decls, *_malformed(source, decls)))
            chunk.start = start
            chunks.append(chunk)
        return chunks

    @cached_property
    def starts(self) -> dict[Source, int]:
        """Where the sources of its chunks start."""
        return {chunk.source: chunk.start for chunk in self.chunks}

    def chunk_at(self, offset: int) -> Chunk:
        """Return the part that an offset is in."""
        index = bisect_right(self.chunks, offset, key=lambda chunk: chunk.start)
        return self.chunks[max(index - 1, 0)]

    @property
    def imports(self) -> Iterator[str]:
        """The paths of the files that it imports."""
        for chunk in self.chunks:
            for decl in chunk.decls:
                if isinstance(decl, ImportDecl) and decl.kind.id == IMPORT:
                    yield os.path.normpath(os.path.join(self.source.folder, decl.path.value))

    def annotator(self, chunks: list[Chunk]) -> Annotator:
        """Return the annotator of the text with all these declarations in scope."""
        if self._annotator is None or self._annotator[0] != chunks:
            decls = [decl for chunk in chunks for decl in chunk.decls]
            self._annotator = list(chunks), Annotator(decls, self.source)
        return self._annotator[1]


@cache
def _heads() -> re.Pattern[str]:
    """Return the pattern of a chunk's start: a kind at the margin, with the comment above it."""
    kinds = "|".join((*DECLARATIONS, IMPORT))
    return re.compile(rf'^(?:#[^\n]*\n)*(?:{kinds})[ \t]+(?=[A-Za-z_"]|$)', re.M)


def _malformed(source: Source, decls: Sequence[Decl]) -> Iterator[Decl]:
    """Yield the declaration that a chunk starts with, if it cannot be read: its name is known."""
    head = re.match(r"(?:\s|#[^\n]*\n)*([A-Za-z_]\w*)\s+([A-Za-z_]\w*)\s*[{(=:]", source.text)
    known = DECLARATIONS.get(head[1]) if head is not None else None
    if head is None or known is None or known.form is not None:
        return
    if any(isinstance(decl, NamedDecl) and decl.name.id == head[2] for decl in decls):
        return
    kind, name = (Name(Span(source, *head.span(i)), head[i]) for i in (1, 2))
    span = Span(source, head.start(1), len(source.text.rstrip()))
    if known.is_block:
        yield BlockDecl(span, kind, name, ())
    else:
        rest = Span(source, head.end(), span.end)
        yield ValueDecl(span, kind, name, None, UnknownValue(rest, Param(head[2], "any", "")))


@define(eq=False)
class Documents:
    """All texts by their paths. ``folders`` are those of the project."""

    folders: tuple[str, ...] = ()
    _open: dict[str, Document] = field(factory=dict, init=False)
    _disk: dict[str, tuple[tuple[int, int], Document]] = field(factory=dict, init=False)

    def put(self, path: str, text: str, version: int | None) -> Document:
        """Remember a text that is open in the editor."""
        text = re.sub("[\ud800-\udfff]", "\ufffd", text)  # halves of characters have no encoding
        source = Source(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))
        self._open[path] = Document(source, version, self._open.get(path))
        return self._open[path]

    def close(self, path: str) -> None:
        self._open.pop(path, None)

    def opened(self) -> list[Document]:
        return list(self._open.values())

    def is_open(self, path: str) -> bool:
        return path in self._open

    def get(self, path: str) -> Document | None:
        """Return the text of a path; None if there is none."""
        if path in self._open:
            return self._open[path]
        try:
            info = os.stat(path)
        except (OSError, ValueError):
            return None
        stamp = info.st_mtime_ns, info.st_size
        known = self._disk.get(path)
        if known is None or known[0] != stamp:
            source, _ = read_source(path)
            if source is None:
                return None
            known = self._disk[path] = stamp, Document(source)
        return known[1]

    def read(self, path: str) -> tuple[Source | None, Diagnostics]:
        """Read a file as :func:`rlc.lang.read.read_source` does, but as it is in the editor."""
        if path in self._open and self._open[path].source.text.strip():
            return self._open[path].source, Diagnostics()
        return read_source(path)

    def plain(self, path: str) -> Document | None:
        """Return a file that is no recipe, such as the user's own code; None if it is not there."""
        if path in self._open:
            return self._open[path]
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                return Document(Source(path, file.read(MAX_BYTES)))
        except OSError:
            return None

    def closure(self, document: Document) -> dict[str, Document]:
        """Return a text and all that it imports, by path."""
        found, waiting = {document.path: document}, [document]
        while waiting:
            for path in waiting.pop().imports:
                if path not in found and (other := self.get(path)) is not None:
                    found[path] = other
                    waiting.append(other)
        return found

    def seen(self, document: Document) -> list[Chunk]:
        """Return the parts of a text and of all that it imports, its own first."""
        return [chunk for each in self.closure(document).values() for chunk in each.chunks]

    def scope(self, document: Document) -> Mapping[str, NamedDecl]:
        """Return the declarations of a text and of all that it imports, by name."""
        return document.annotator(self.seen(document)).declared

    def notes(
        self, document: Document, chunks: Iterable[Chunk] | None = None
    ) -> tuple[list[Note], list[Arguments]]:
        """Return the notes on a text, or on parts of it, in order, by places in the text. A name
        of the recipe stands for what is declared now."""
        seen = self.seen(document)
        heads = tuple(each.heads for each in seen)
        annotator = document.annotator(seen)
        declared = annotator.declared
        words: list[Note] = []
        arguments: list[Arguments] = []
        for chunk in document.chunks if chunks is None else chunks:
            found, by = chunk.notes(annotator, heads), chunk.start
            for role, start, end, what, want, owner in sorted(found.words.values(), key=_start):
                if role == "reference":
                    what = declared.get(chunk.source.text[start:end], what)
                words.append(Note(role, start + by, end + by, what, want, owner))
            arguments += (evolve(each, by=by) for each in found.arguments)
        return words, arguments

    def place_of(self, decl: NamedDecl) -> TextRange | None:
        """Return where the name of a declaration stands; None if its text is gone."""
        document = self.get(decl.span.source.name)
        if document is None or decl.span.source not in document.starts:
            return None
        start = document.starts[decl.span.source]
        return TextRange(document, start + decl.name.span.start, start + decl.name.span.end)

    def importers(self, path: str) -> list[Document]:
        """The open texts that import a file, directly or not."""
        return [d for d in self.opened() if d.path != path and path in self.closure(d)]

    def project(self) -> Iterator[Document]:
        """Every text of the project, and all that are open."""
        recipes = islice(_recipes(self.folders), MOST_FILES)
        for path in dict.fromkeys((*self._open, *recipes)):
            if (document := self.get(path)) is not None:
                yield document


def _start(note: Note) -> int:
    return note.start


def _recipes(folders: Iterable[str]) -> Iterator[str]:
    for folder in folders:
        for root, inner, files in os.walk(folder):
            inner[:] = sorted(i for i in inner if i not in _NOT_OURS and not i.startswith("."))
            yield from (os.path.join(root, f) for f in sorted(files) if f.endswith(SUFFIX))


def path_of(uri: str) -> str:
    """Return the path of a ``file:`` URI; any other URI stands for itself."""
    parts = urlsplit(uri)
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" else uri


def uri_of(path: str) -> str:
    """Return the URI of a path."""
    if "://" in path or path.startswith("untitled:"):
        return path
    from pathlib import Path

    return Path(os.path.abspath(path)).as_uri()


class NameUse(NamedTuple):
    """A name of the declaration ``decl``, or of what is local to it."""

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
    if at is not None and at.role in ("path", "literal"):
        return _file(documents, document, at)
    name = _name_of(at, document) if at is not None else None
    if name is not None and name.is_local:
        return next(uses_within(documents, document, name), None)
    return documents.place_of(name.decl) if name is not None else None


def _file(documents: Documents, document: Document, at: Note) -> TextRange | None:
    text = string_value(document.source.text[at.start : at.end])
    if at.role == "literal" and (at.want is None or at.want.file is False):
        return None
    path, _, function = text.rpartition(":") if re.search(r"\.py:\w+$", text) else (text, "", "")
    whole = os.path.normpath(os.path.join(document.source.folder, os.path.expanduser(path)))
    if (other := documents.plain(whole)) is None:
        return None
    name = re.escape(function)
    pattern = rf"^(?:async )?(?:def|class) +({name})\b|^({name}) *="
    found = re.search(pattern, other.source.text, re.M)
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
        other, text = place.document, place.document.source.text
        notes = documents.notes(other, [other.chunk_at(place.start)])[0]
        inner = {text[at.start : at.end] for at in notes if at.role in ("parameter", "local")}
        if new in documents.scope(other) or new in inner:
            return f"`{new}` is declared already"
    return None
