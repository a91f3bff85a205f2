"""What is wanted where the cursor is: the text before it, made whole around a hole, and checked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from attrs import evolve, field, frozen

from rlc.algo.expressions.vocabulary import Operation
from rlc.catalog.declarations import DECLARATIONS
from rlc.catalog.records import Param
from rlc.check.notes import Annotator, Arguments, Note
from rlc.check.reuse.copies import filled
from rlc.check.scope import NamedDecl
from rlc.check.values import Unknown
from rlc.lang.ast import Decl
from rlc.lang.source import Source, Span
from rlc.lang.syntax import parse
from rlc.lang.words import read_words
from rlc.lsp.documents import Document, Documents

HOLE = "_hole_"
CLOSERS = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
# What can follow a hole that is a value, the left side of a comparison, a name, or a kind.
_REST = ("", " < 0", " = 0", " x { }")


@frozen(eq=False)
class Cursor:
    """A hole in the declaration ``decl``, None for a kind of declaration. ``note`` is what the hole
    is, if that is known, and ``arguments`` what it is given with."""

    annotator: Annotator
    source: Source
    at: int
    decl: Decl | None = None
    note: Note | None = None
    all_arguments: list[Arguments] = field(factory=list)

    @property
    def want(self) -> Param | None:
        if self.arguments is not None and isinstance(self.arguments.owner, Operation):
            return self.arguments.params[0]
        return self.note.want if self.note is not None else None

    @cached_property
    def arguments(self) -> Arguments | None:
        """What the hole is an argument or field of itself, and not a part of one."""
        for each in reversed(self.all_arguments):
            for item in each.items:
                part = item.name or item.value
                if part.span.start == self.at and part.span.source is self.source:
                    return each
        return None

    def calls(self) -> Iterator[Arguments]:
        """Return the calls that the hole is in, the innermost last."""
        found = (each for each in self.all_arguments if each.is_call and each.owner is not None)
        by_place = {(each.start, -each.end): each for each in found}
        return (
            each
            for _, each in sorted(by_place.items(), key=lambda item: item[0])
            if each.start < self.at < each.end
        )

    @property
    def is_name(self) -> bool:
        """Whether the hole is the name of a field, an argument or a key."""
        rest = self.source.text[self.at + len(HOLE) :]
        return rest.startswith(_REST[2])

    @property
    def locals(self) -> Iterator[Param]:
        """The parameters of the declaration, and the parts of a loss that are above the hole."""
        if not isinstance(self.decl, NamedDecl):
            return
        yield from (p for p in self.annotator.parameters(self.decl) if p.name != self._parameter)
        for note in self.annotator.notes.sources[self.source].words.values():
            is_part = note.role == "local" and note.want is None and isinstance(note.what, Param)
            if is_part and note.end < self._field and isinstance(note.what, Param):
                yield note.what

    @property
    def _field(self) -> int:
        """Where the field starts that the hole is in."""
        fields = getattr(self.decl, "fields", ())
        return max((f.span.start for f in fields if f.span.start <= self.at), default=0)

    @property
    def _parameter(self) -> str:
        """The parameter that the hole is the type or default of."""
        for each in getattr(self.decl, "parameters", None) or ():
            if each.span.start <= self.at < each.span.end:
                return str(each.name.id)
        return ""


def cursor_at(
    documents: Documents, document: Document, start: int, quoted: bool = False
) -> Cursor | None:
    """Return what is wanted at an offset, of a string if it is ``quoted``: whatever stands behind
    it does not matter. None if nothing can be made of what stands before."""
    chunk = document.chunk_at(max(start - 1, 0))
    before = document.source.text[chunk.start : start]
    others = [d for c in documents.seen(document) if c is not chunk for d in c.decls]
    for text in _wholes(before, quoted):
        source = Source(document.path, text, document.source.folder)
        recipe, problems = parse(source)
        if any(item.span is not None and item.span.end >= len(before) for item in problems):
            continue
        span = Span(source, len(before), len(before) + len(HOLE) + 2 * quoted)
        hole = Unknown(span, Param(HOLE, "any", ""))
        decls = [_with_hole(decl, hole) for decl in recipe.decls]
        annotator = Annotator([*decls, *others], source)
        decl = next((d for d in decls if d.span.start <= span.start <= d.span.end), None)
        if decl is None:
            continue
        if decl.kind.id == HOLE:
            return Cursor(annotator, source, span.start)
        annotator.annotate(decl)
        notes = annotator.notes.sources[source]
        note = notes.words.get((span.start, span.end))
        return Cursor(annotator, source, span.start, decl, note, notes.arguments)
    return None


def _with_hole(decl: Decl, hole: Unknown) -> Decl:
    """The declaration with a value that is not known in place of the hole."""
    made = filled(decl, {HOLE: hole})
    if not isinstance(made, NamedDecl) or not made.parameters:
        return made
    parameters = tuple(
        each if each.default is None else evolve(each, default=filled(each.default, {HOLE: hole}))
        for each in made.parameters
    )
    return evolve(made, parameters=parameters)


def _wholes(before: str, quoted: bool) -> Iterator[str]:
    """The texts that may be meant: a hole, what may follow it, and whatever is open is closed."""
    opened: list[str] = []
    for word in read_words(Source("", before)):
        if word.kind in CLOSERS:
            opened.append(CLOSERS[word.kind])
        elif opened and before[word.start : word.end] == opened[-1]:
            opened.pop()
    closers = "".join(reversed(opened))
    head = re.match(r"(?:\s|#[^\n]*\n)*(\w+)\s+\w+\s*[(:]", before)
    tails = [""]
    if head is not None and "}" not in closers:  # perhaps in its parameters
        known = DECLARATIONS.get(head[1])
        tails.append(" { }" if known is not None and known.is_block else " = 0")
    for rest in _REST[: 1 if quoted else None]:
        for tail in tails:
            yield (
                f'{before}"{HOLE}"{closers}{tail}'
                if quoted
                else f"{before}{HOLE}{rest}{closers}{tail}"
            )
