"""Texts as the editor has them: open ones as they are typed, others as they are on the disk."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from urllib.parse import unquote, urlsplit

from attrs import define, field

from rlc.lang.diagnostics import Diagnostics
from rlc.lang.read import MAX_BYTES, read_source
from rlc.lang.source import Source
from rlc.lsp.outline import Declared, Outline, read_outline
from rlc.lsp.reading import Reader

SUFFIX = ".rl"
MOST_FILES = 2_000  # of a project that are looked through for uses of a name
_NOT_OURS = {"node_modules", "venv", "__pycache__", "site-packages"}


class Document:
    """A text. ``version`` is the editor's count of its changes; None for one of the disk."""

    def __init__(self, source: Source, version: int | None = None) -> None:
        self.source = source
        self.version = version
        self._read: tuple[Mapping[str, Declared], Reader] | None = None

    @property
    def path(self) -> str:
        return self.source.name

    @cached_property
    def outline(self) -> Outline:
        return read_outline(self.source)

    @property
    def imports(self) -> Iterator[str]:
        """The paths of the files that it imports."""
        for path, _, _ in self.outline.imports:
            yield os.path.normpath(os.path.join(self.source.folder, path))

    def reading(self, scope: Mapping[str, Declared]) -> Reader:
        """Return what its words mean where these names are declared."""
        if self._read is None or self._read[0] != scope:
            self._read = scope, Reader(self.outline, scope).read()
        return self._read[1]


@define(eq=False)
class Documents:
    """All texts by their paths. ``folders`` are those of the project."""

    folders: tuple[str, ...] = ()
    _open: dict[str, Document] = field(factory=dict, init=False)
    _disk: dict[str, tuple[tuple[int, int], Document]] = field(factory=dict, init=False)

    def put(self, path: str, text: str, version: int | None) -> Document:
        """Remember a text that is open in the editor."""
        source = Source(path, text.removeprefix("\ufeff").replace("\r\n", "\n"))
        self._open[path] = Document(source, version)
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
        """A text and all that it imports, by path."""
        found = {document.path: document}
        waiting = [document]
        while waiting:
            for path in waiting.pop().imports:
                if path not in found and (other := self.get(path)) is not None:
                    found[path] = other
                    waiting.append(other)
        return found

    def scope(self, document: Document) -> dict[str, Declared]:
        """The names that are declared in a text and in what it imports: its own come first."""
        names: dict[str, Declared] = {}
        for each in self.closure(document).values():
            for decl in each.outline.heads.values():
                names.setdefault(decl.name, decl)
        return names

    def reading(self, document: Document) -> Reader:
        return document.reading(self.scope(document))

    def importers(self, path: str) -> list[Document]:
        """The open texts that import a file, directly or not."""
        return [d for d in self.opened() if d.path != path and path in self.closure(d)]

    def project(self) -> Iterator[Document]:
        """Every text of the project, and all that are open."""
        paths = dict.fromkeys(self._open)
        paths |= dict.fromkeys(_recipes(self.folders))
        for path in paths:
            if (document := self.get(path)) is not None:
                yield document


def _recipes(folders: Iterable[str]) -> Iterator[str]:
    count = 0
    for folder in folders:
        for root, inner, files in os.walk(folder):
            inner[:] = sorted(i for i in inner if i not in _NOT_OURS and not i.startswith("."))
            for file in sorted(files):
                if file.endswith(SUFFIX):
                    count += 1
                    if count > MOST_FILES:
                        return
                    yield os.path.join(root, file)


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
