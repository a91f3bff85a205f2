"""Completion at the cursor, and the call that it is in, also in a text that does not parse yet."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any

from attrs import define, evolve, field, frozen
from lsprotocol import types

from rlc.algo import INPUTS, Operation, functions_of
from rlc.catalog import (
    AT,
    CONTAINS,
    DECLARATIONS,
    EPISODE_VALUES,
    EXPECT,
    EXPRESSION_KINDS,
    KINDS,
    MODEL_FOLDER,
    PARAM_TYPES,
    STAGES,
    SWEEP,
    TRAINING,
    Builtin,
    Param,
    builtins_of,
    find_builtin,
    metrics_of,
)
from rlc.check import (
    AXIS,
    COMPARISON,
    EXPECTATION,
    EXPRESSION,
    KEYS_ARE_NAMES,
    MEASURE,
    NAMEABLE,
    STAGE_OF_SWEEP,
    SWEEP_OF_CLAIM,
    WORD,
    Annotator,
    Arguments,
    NamedDecl,
    Note,
    UnknownValue,
    field_of,
    fields_of,
    filled,
)
from rlc.lang import BlockDecl, Decl, ImportDecl, ListExpr, RecordExpr, Source, Span, read_words
from rlc.lang.syntax import parse
from rlc.lsp import describe
from rlc.lsp.documents import IMPORT, Document, Documents
from rlc.lsp.protocol import Positions
from rlc.plan import StagePlan
from rlc.pricing import ESTIMATES, JOB

Items = Iterator[types.CompletionItem]
Kind = types.CompletionItemKind

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w*)*\Z|\Z")
_TYPED = f"{string.ascii_letters}{string.digits}_.-"  # of a word or number that is begun
_PATH = re.compile(r"^[~./]|/")  # what was typed of a string names a file
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def complete(
    documents: Documents,
    document: Document,
    offset: int,
    positions: Positions,
    snippets: bool = False,
    stages: Mapping[str, StagePlan] = MappingProxyType({}),
) -> list[types.CompletionItem]:
    """Return the proposals at an offset, the best first. With ``snippets`` the cursor goes into
    parentheses or braces. ``stages`` are those of the last plan, which says what is measured."""
    text = document.source.text[:offset]
    line = text[text.rfind("\n") + 1 :]
    rest = _STRINGS.sub(lambda match: " " * len(match[0]), line)
    quote = rest.find('"')
    if "#" in (rest if quote < 0 else rest[:quote]):
        return []  # a comment
    word = _WORD.search(text)
    start = offset - len(line) + quote if quote >= 0 else word.start() if word else offset
    cursor = cursor_at(documents, document, start, quoted=quote >= 0)
    if cursor is None:
        return []
    proposals = _Completion(cursor, text, start, positions, snippets, stages)
    return list(proposals.in_string() if quote >= 0 else proposals.words())


@define(eq=False)
class _Completion:
    """Proposals at a cursor. ``text`` stands before it; the word or string that is typed begins at
    ``start``."""

    cursor: Cursor
    text: str
    start: int
    positions: Positions
    snippets: bool
    stages: Mapping[str, StagePlan]
    count: int = 0

    @property
    def typed(self) -> str:
        return self.text[self.start :]

    @property
    def scope(self) -> Mapping[str, NamedDecl]:
        return self.cursor.annotator.declared

    def _item(
        self, label: str, start: int, kind: Any, insert: str | None = None, **more: object
    ) -> types.CompletionItem:
        self.count += 1
        new, form = insert if insert is not None else label, types.InsertTextFormat.PlainText
        if "$0" in new and self.snippets:
            form = types.InsertTextFormat.Snippet
        else:
            new = new.replace("$0", "")
        return types.CompletionItem(
            label=label,
            kind=kind,
            sort_text=f"{self.count:05}",
            insert_text_format=form,
            text_edit=types.TextEdit(self.positions.range(start, len(self.text)), new),
            **more,
        )

    def words(self) -> Items:
        cursor, start = self.cursor, self.start
        role = cursor.note.role if cursor.note is not None else ""
        given = cursor.arguments
        if "." in self.typed:
            yield from self._behind_point()
        elif cursor.decl is None:
            yield from self._kinds(start)
        elif role == "type":
            kinds = [kind for kind in KINDS if kind in DECLARATIONS]
            for name in (*PARAM_TYPES, WORD, *kinds):
                yield self._item(name, start, Kind.TypeParameter)
        elif role == "key" and cursor.want is not None and cursor.want.type in KEYS_ARE_NAMES:
            is_axis = cursor.want.type == AXIS
            yield from self._declared(start, *(DECLARATIONS if is_axis else ("env",)))
        else:
            if given is not None and not isinstance(given.owner, Operation):
                yield from self._named(given, start, Kind.Property if given.is_call else Kind.Field)
            if role == "hole" or (given is not None and not cursor.is_name):
                yield from self._values(cursor.want, start)

    def _kinds(self, start: int) -> Items:
        for declared in DECLARATIONS.values():
            kind, detail = declared.kind, declared.doc
            form = f"{kind} $0"
            if declared.is_block and declared.form is None:
                form += " {\n}"
            data = {"declaration": kind}
            yield self._item(kind, start, Kind.Keyword, form, detail=detail, data=data)
        detail = "declarations of a file"
        yield self._item(IMPORT, start, Kind.Keyword, 'import "$0"', detail=detail)

    def _named(self, given: Arguments, start: int, kind: Any) -> Items:
        items = [item for item in given.items if item.span.start < self.cursor.at]
        unnamed = sum(item.name is None for item in items)
        taken = {item.name.id for item in items if item.name is not None}
        taken |= {param.name for param in given.params[:unnamed]}
        open_ = [param for param in given.params if param.name not in taken]
        for param in sorted(open_, key=lambda param: not param.required):
            default = describe.default_text(param)
            detail = default if param.required else f"= {default}"
            doc, insert = _markdown(describe.meaning(param)), f"{param.name} = $0"
            yield self._item(param.name, start, kind, insert, detail=detail, documentation=doc)

    def _values(self, want: Param | None, start: int) -> Items:
        if want is None:
            return
        if want.type == EXPRESSION:
            yield from self._expression(start)
        elif want.type == STAGE_OF_SWEEP:
            yield from self._declared(start, *(STAGES if want.name == "rehearse" else TRAINING))
        elif want.type == EXPECTATION:
            yield from self._expected(start)
        elif want.type == SWEEP_OF_CLAIM:
            yield from self._declared(start, SWEEP)
        elif want.type == COMPARISON:
            yield from self._configurations(start)
        elif want.type == MEASURE:
            yield from self._declared(start, *STAGES)
            if want.name == EXPECT:
                yield self._item(JOB, start, Kind.Module, detail="all stages together")
        elif want.type in STAGES:
            yield from self._declared(start, want.type)
        elif want.type in KINDS:
            yield from self._of_kind(want, start)
        else:
            yield from self._scalars(want, start)
        if want.optional:
            yield self._item("none", start, Kind.Constant, detail="without")

    def _configurations(self, start: int) -> Items:
        """Propose the values that the sweep of a claim tries, and `at` around them."""
        yield self._item(AT, start, Kind.Function, f"{AT}($0)", detail="a configuration")
        fields = self.cursor.decl.fields if isinstance(self.cursor.decl, BlockDecl) else ()
        sweep = next((self.scope.get(f.value.span.text) for f in fields if f.name.id == "of"), None)
        over = sweep.fields if isinstance(sweep, BlockDecl) else ()
        for axis in (
            axis for f in over if isinstance(f.value, RecordExpr) for axis in f.value.fields
        ):
            for value in axis.value.items if isinstance(axis.value, ListExpr) else ():
                condition = f"{axis.name.id} == {value.span.text}"
                yield self._item(condition, start, Kind.Value, detail="in the sweep")

    def _of_kind(self, want: Param, start: int) -> Items:
        kind = KINDS[want.type]
        kinds = [name for name in (want.type, kind.also, want.also, kind.before_then) if name]
        for choice in want.all_choices():
            yield self._value(choice, start, choice if want.is_word(choice) else f'"{choice}"')
        for name in kinds:
            yield from self._declared(start, *NAMEABLE.get(name, (name,)))
        if kind.plain:
            yield from self._declared(start, "param")
        for name in kinds:
            for builtin in builtins_of(name):
                yield self._builtin(builtin, start)
        yield from self._local(start)

    def _builtin(self, builtin: Builtin, start: int) -> types.CompletionItem:
        insert = builtin.name if builtin.word else f"{builtin.name}($0)"
        kind = Kind.Constant if builtin.word else Kind.Function
        data = {"kind": builtin.kind, "name": builtin.name}
        return self._item(builtin.name, start, kind, insert, detail=builtin.doc, data=data)

    def _scalars(self, want: Param, start: int) -> Items:
        choices = want.all_choices()
        for choice in choices:
            quoted = want.type == "string" and not want.is_word(choice)
            yield self._value(choice, start, f'"{choice}"' if quoted else choice)
        if not choices and want.suggests is not None:
            for value in want.suggests():
                yield self._value(value, start, f'"{value}"')
        if want.type in ("bool", "any"):
            yield self._item("true", start, Kind.Constant)
            yield self._item("false", start, Kind.Constant)
        if want.file == MODEL_FOLDER:
            yield from self._declared(start, "model")  # policy.base
        if not choices:
            yield from self._declared(start, "param")
            yield from self._local(start)

    def _value(self, value: str, start: int, insert: str) -> types.CompletionItem:
        known = describe.entry_of(value)
        doc = known and _markdown(describe.entry(known))
        detail = (known.reason or known.doc) if known else None
        return self._item(value, start, Kind.Value, insert, detail=detail, documentation=doc)

    def _expected(self, start: int) -> Items:
        for param in EPISODE_VALUES:
            insert = param.name if param.name == "prompt" else f'{param.name}("$0")'
            yield self._item(param.name, start, Kind.Function, insert, detail=param.doc)
        doc = "whether a text, or what is needed, contains another"
        yield self._item(CONTAINS, start, Kind.Function, f"{CONTAINS}($0)", detail=doc)
        yield from self._declared(start, *STAGES, "model")
        yield self._item(JOB, start, Kind.Module, detail="all stages together")

    def _declared(self, start: int, *kinds: str) -> Items:
        own = self.cursor.decl  # which cannot name itself
        within = own.name.id if isinstance(own, NamedDecl) else ""
        for decl in self.scope.values():
            kind, name = decl.kind.id, decl.name.id
            if kind in kinds and name != within:
                insert = f"{name}($0)" if decl.parameters is not None else name
                doc = _markdown(describe.declared(decl))
                yield self._item(name, start, Kind.Variable, insert, detail=kind, documentation=doc)

    def _local(self, start: int) -> Items:
        for param in self.cursor.locals:
            yield self._item(param.name, start, Kind.Variable, detail=param.doc)

    def _expression(self, start: int) -> Items:
        yield from self._local(start)
        decl = self.cursor.decl
        kind = EXPRESSION_KINDS.get(decl.kind.id, "reward") if decl is not None else "reward"
        for each in INPUTS[kind].values():
            yield self._item(each.name, start, Kind.Variable, detail=each.doc)
        for word, operation in functions_of(kind).items():
            insert = f"{word}($0, over = group)" if operation.over else f"{word}($0)"
            yield self._item(word, start, Kind.Function, insert, detail=operation.doc)

    def _behind_point(self) -> Items:
        head, *inner = self.typed.split(".")
        want, given = self.cursor.want, self.cursor.arguments
        behind = len(self.text) - len(inner[-1])
        for builtin in builtins_of(want.type) if want is not None else ():
            if builtin.name.startswith(f"{head}."):  # verl.grpo
                yield self._builtin(builtin, self.start)
        decl = self.scope.get(head)
        if want is not None and want.type in (MEASURE, EXPECTATION):
            if inner[:-1] in (["envs"], ["env"]):  # of its plan, and in the names of metrics
                yield from self._declared(behind, "env")
            after = ".".join([*inner[:-1], ""]).lstrip(".")
            for name in self._measured(head, decl, want.name == EXPECT or want.type == EXPECTATION):
                if name.startswith(after):
                    yield self._item(name[len(after) :], behind, Kind.Field)
            return
        known = DECLARATIONS.get(decl.kind.id) if decl is not None else None
        params = known.fields if known is not None else ()
        names = inner[:-1]
        if given is not None and self.cursor.is_name:
            params, names = given.params, [head, *names]
        for name in names:
            params = fields_of(field_of(params, name))
        for param in params:
            yield self._item(param.name, behind, Kind.Field, detail=param.doc)

    def _measured(self, head: str, decl: NamedDecl | None, in_advance: bool) -> Iterable[str]:
        """Return what is measured of a stage, and ``in_advance`` estimated of it or of the job."""
        estimates = ESTIMATES if in_advance else ()
        if decl is None:
            return estimates if head == JOB else ()
        stage = self.stages.get(head)
        measured = (name for name in metrics_of(stage) if "*" not in name) if stage else ()
        return (*measured, *estimates) if decl.kind.id in STAGES else ()

    def in_string(self) -> Items:
        start, typed = self.start + 1, self.text[self.start + 1 :]
        want = self.cursor.want
        if isinstance(self.cursor.decl, ImportDecl):
            yield from self._paths(typed, (".rl",))
            return
        if want is None:
            return
        named = [*want.all_choices(), *(want.suggests() if want.suggests else ())]
        for name in named if want.type == "string" else ():
            yield self._value(name, start, name)
        if want.file is not False and (not named or _PATH.search(typed)):
            yield from self._paths(typed, (".py",) if want.code is not None else ())

    def _paths(self, typed: str, endings: tuple[str, ...]) -> Items:
        """Yield the files and folders of a path that is typed, files with one of the endings."""
        folder, _, begun = typed.rpartition("/")
        shown = folder or ("/" if typed.startswith("/") else "")
        where = os.path.join(self.cursor.source.folder, os.path.expanduser(shown))
        try:
            found = sorted(os.scandir(where or "."), key=lambda item: item.name)
        except OSError:
            return
        for each in found:
            if each.name.startswith(".") and not begun.startswith("."):
                continue
            behind = len(self.text) - len(begun)
            if each.is_dir():
                yield self._item(f"{each.name}/", behind, Kind.Folder)
            elif not endings or each.name.endswith(endings):
                yield self._item(each.name, behind, Kind.File)


def resolved(item: types.CompletionItem) -> types.CompletionItem:
    """Add its documentation to a proposal."""
    data = item.data if isinstance(item.data, Mapping) else {}
    text = None
    if (kind := data.get("declaration")) in DECLARATIONS:
        text = describe.declaration(DECLARATIONS[kind])
    elif (builtin := find_builtin(data.get("kind", ""), data.get("name", ""))) is not None:
        text = describe.builtin(builtin)
    if text is not None:
        item.documentation = _markdown(text)
    return item


def _markdown(text: str) -> types.MarkupContent:
    return types.MarkupContent(types.MarkupKind.Markdown, text)


def signature_help(
    documents: Documents, document: Document, offset: int
) -> types.SignatureHelp | None:
    """Return the innermost call around an offset; None outside of calls."""
    text = document.source.text
    start = offset - len(text[:offset]) + len(text[:offset].rstrip(_TYPED))
    cursor = cursor_at(documents, document, start)
    calls = list(cursor.calls()) if cursor is not None else []
    if cursor is None or not calls:
        return None
    given = calls[-1]
    owner = given.owner
    name = owner.name.id if isinstance(owner, NamedDecl) else getattr(owner, "name", "")
    shown, labels = describe.signature(name, given.params)
    parameters = [
        types.ParameterInformation(label, _markdown(describe.meaning(param)))
        for label, param in zip(labels, given.params, strict=True)
    ]
    return types.SignatureHelp(
        [types.SignatureInformation(shown, getattr(owner, "doc", ""), parameters)],
        active_signature=0,
        active_parameter=_active(given, cursor.at),
    )


def _active(given: Arguments, at: int) -> int | None:
    for position, item in enumerate(given.items):
        if item.span.start <= at < item.span.end:
            names = [param.name for param in given.params]
            name = item.name.id if item.name else names[position] if names[position:] else ""
            return names.index(name) if name in names else None
    return None


HOLE = "_hole_"
CLOSERS = {"LPAR": ")", "LSQB": "]", "LBRACE": "}"}
# The rest of a text whose hole is a value, the left side of a comparison, a name, or a kind.
_REST = ("", " < 0", " = 0", " x { }")


@frozen(eq=False)
class Cursor:
    """A hole in the text before the cursor: in the declaration ``decl``, None if it is a kind of
    declaration. ``note`` is its meaning, if that is known."""

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
        """The arguments of which the hole is one itself, and not a part of one."""
        for each in reversed(self.all_arguments):
            spans = ((item.name or item.value).span for item in each.items)
            if any(s.start == self.at and s.source is self.source for s in spans):
                return each
        return None

    def calls(self) -> Iterator[Arguments]:
        """Return the calls that the hole is in, the innermost last."""
        found = (each for each in self.all_arguments if each.is_call and each.owner is not None)
        by_place = {(each.start, -each.end): each for each in found}
        calls = (by_place[place] for place in sorted(by_place))
        return (each for each in calls if each.start < self.at < each.end)

    @property
    def is_name(self) -> bool:
        """Whether the hole is the name of a field, an argument or a key."""
        return self.source.text.startswith(_REST[2], self.at + len(HOLE))

    @property
    def locals(self) -> Iterator[Param]:
        """The parameters of the declaration, and the parts of a loss that are above the hole."""
        if not isinstance(self.decl, NamedDecl):
            return
        # Not the parameter of which the hole is the type or default, nor parts from its field on.
        own = [p for p in self.decl.parameters or () if p.span.start <= self.at < p.span.end]
        fields = getattr(self.decl, "fields", ())
        field = max((f.span.start for f in fields if f.span.start <= self.at), default=0)
        names = [parameter.name.id for parameter in own]
        yield from (p for p in self.annotator.parameters(self.decl) if p.name not in names)
        for note in self.annotator.notes.sources[self.source].words.values():
            is_part = note.role == "local" and note.want is None
            if is_part and note.end < field and isinstance(note.what, Param):
                yield note.what


def cursor_at(
    documents: Documents, document: Document, start: int, quoted: bool = False
) -> Cursor | None:
    """Return the hole at an offset, a string if it is ``quoted``, whatever follows. None if the
    text before it cannot be completed."""
    chunk = document.chunk_at(max(start - 1, 0))
    before = document.source.text[chunk.start : start]
    others = [d for c in documents.seen(document) if c is not chunk for d in c.decls]
    for text in _wholes(before, quoted):
        source = Source(document.path, text, document.source.folder)
        recipe, problems = parse(source)
        if any(item.span is not None and item.span.end >= len(before) for item in problems):
            continue
        span = Span(source, len(before), len(before) + len(HOLE) + 2 * quoted)
        hole = UnknownValue(span, Param(HOLE, "any", ""))
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


def _with_hole(decl: Decl, hole: UnknownValue) -> Decl:
    made = filled(decl, {HOLE: hole})
    if not isinstance(made, NamedDecl) or not made.parameters:
        return made
    parameters = tuple(
        each if each.default is None else evolve(each, default=filled(each.default, {HOLE: hole}))
        for each in made.parameters
    )
    return evolve(made, parameters=parameters)


def _wholes(before: str, quoted: bool) -> Iterator[str]:
    """Yield texts that may be meant: with a hole, what may follow it, and all brackets closed."""
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
    hole = f'"{HOLE}"' if quoted else HOLE
    for rest in _REST[: 1 if quoted else None]:
        yield from (f"{before}{hole}{rest}{closers}{tail}" for tail in tails)
