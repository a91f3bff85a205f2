"""What may come next where the cursor is: also in a text that does not parse yet."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from lsprotocol import types

from rlc.algo.expressions.vocabulary import INPUTS, OPERATIONS
from rlc.catalog.declarations import DECLARATIONS, EXPECT, PARAM_TYPES, STAGES, TRAINING
from rlc.catalog.index import KINDS, builtins_of, find_builtin
from rlc.catalog.metrics import metrics_of
from rlc.catalog.records import MODEL_FOLDER, Builtin, Param
from rlc.check.reuse.types import WORD
from rlc.check.scope import NAMEABLE
from rlc.lang.source import Source
from rlc.lsp import describe
from rlc.lsp.frames import AXIS, EXPRESSION, MEASURE, STAGE_OF_SWEEP, Frame, fields_of
from rlc.lsp.outline import IMPORT, Declared, read_outline
from rlc.lsp.positions import Positions
from rlc.lsp.reading import KEYS_ARE_NAMES, Reader
from rlc.plan.records import StagePlan
from rlc.pricing.quantities import ESTIMATES, JOB

Items = Iterator[types.CompletionItem]
Kind = types.CompletionItemKind

_WORD = re.compile(r"[A-Za-z_]\w*(?:\.\w*)*\Z|\Z")
_PATH = re.compile(r"^[~./]|/")  # what was typed of a string names a file
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*"')


def complete(
    source: Source,
    offset: int,
    scope: Mapping[str, Declared],
    positions: Positions,
    snippets: bool = False,
    stages: Mapping[str, StagePlan] = MappingProxyType({}),
) -> list[types.CompletionItem]:
    """Return the proposals at an offset, the likeliest first. With ``snippets`` those that go on in
    parentheses or braces put the cursor into them. ``stages`` are those of the last plan that the
    recipe compiled to, which says what is measured."""
    return _Completion(source, offset, scope, positions, snippets, stages).items()


class _Completion:
    def __init__(
        self,
        source: Source,
        offset: int,
        scope: Mapping[str, Declared],
        positions: Positions,
        snippets: bool,
        stages: Mapping[str, StagePlan],
    ) -> None:
        self.source, self.offset, self.scope = source, offset, scope
        self.positions, self.snippets, self.stages = positions, snippets, stages
        self.count = 0
        self.within = ""  # the declaration that the cursor is in, which cannot name itself

    def items(self) -> list[types.CompletionItem]:
        text = self.source.text[: self.offset]
        line = text[text.rfind("\n") + 1 :]
        rest = _STRINGS.sub(lambda match: " " * len(match[0]), line)
        quote = rest.find('"')
        if "#" in (rest if quote < 0 else rest[:quote]):
            return []  # a comment
        if quote >= 0:
            start = self.offset - len(line) + quote
            return list(self._in_string(self._read(start), start + 1))
        written = _WORD.search(text)
        start = written.start() if written else self.offset
        return list(self._words(self._read(start), start))

    def _read(self, stop: int) -> Reader:
        """What there is before the word that is typed."""
        before = Source(self.source.name, self.source.text[:stop], self.source.folder)
        reader = Reader(read_outline(before), self.scope).read()
        self.within = reader.decl.name if reader.decl else ""
        return reader

    def _item(
        self, label: str, start: int, kind: Any, insert: str | None = None, **more: object
    ) -> types.CompletionItem:
        self.count += 1
        new = insert if insert is not None else label
        is_snippet = "$0" in new
        if is_snippet and not self.snippets:
            new, is_snippet = new.replace("$0", ""), False
        return types.CompletionItem(
            label=label,
            kind=kind,
            sort_text=f"{self.count:05}",
            insert_text_format=(
                types.InsertTextFormat.Snippet if is_snippet else types.InsertTextFormat.PlainText
            ),
            text_edit=types.TextEdit(self.positions.range(start, self.offset), new),
            **more,
        )

    # Words

    def _words(self, reader: Reader, start: int) -> Items:
        frame = reader.frame
        typed = self.source.text[start : self.offset]
        if "." in typed:
            yield from self._behind_point(reader, typed, start)
            return
        if frame.state == "head" or (frame.form == "parameters" and frame.state == "item"):
            return  # a name of the author's own
        if frame.form == "file" and frame.state in ("item", "after"):
            yield from self._kinds(start)
        elif frame.state == "type":
            kinds = [kind for kind in KINDS if kind in DECLARATIONS]
            for name in (*PARAM_TYPES, WORD, *kinds):
                yield self._item(name, start, Kind.TypeParameter)
        elif frame.form in ("fields", "record") and frame.state in ("item", "after"):
            yield from self._fields(frame, start)
        elif frame.state == "named":
            return
        else:
            if frame.form == "call" and frame.state == "item":
                yield from self._arguments(frame, start)
            yield from self._values(frame.expected, reader, start)

    def _kinds(self, start: int) -> Items:
        for declared in DECLARATIONS.values():
            form = f"{declared.kind} $0 {{\n}}" if declared.is_block else f"{declared.kind} $0"
            yield self._item(
                declared.kind,
                start,
                Kind.Keyword,
                form if declared.form is None else f"{declared.kind} $0",
                detail=declared.doc,
                data={"declaration": declared.kind},
            )
        yield self._item(
            IMPORT, start, Kind.Keyword, 'import "$0"', detail="declarations of a file"
        )

    def _fields(self, frame: Frame, start: int) -> Items:
        if frame.form == "record" and frame.want is not None and frame.want.type == AXIS:
            yield from self._declared(start, *DECLARATIONS)
        elif frame.want is not None and frame.want.type in KEYS_ARE_NAMES:
            yield from self._declared(start, "env")
        yield from self._named(frame, start, Kind.Field)

    def _arguments(self, frame: Frame, start: int) -> Items:
        yield from self._named(frame, start, Kind.Property)

    def _named(self, frame: Frame, start: int, kind: Any) -> Items:
        """What can still be given by name, what has to be first."""
        taken = {*frame.given, *(p.name for p in frame.params[: frame.position])}
        open_ = [param for param in frame.all_params() if param.name not in taken]
        for param in sorted(open_, key=lambda param: not param.required):
            default = describe.default_text(param)
            detail = default if param.required else f"= {default}"
            doc = types.MarkupContent(types.MarkupKind.Markdown, describe.meaning(param))
            insert = f"{param.name} = $0"
            yield self._item(param.name, start, kind, insert, detail=detail, documentation=doc)

    def _values(self, want: Param | None, reader: Reader, start: int) -> Items:
        """What makes a value for a parameter."""
        if want is None:
            return
        if want.type == EXPRESSION:
            yield from self._expression(reader, start)
        elif want.type == STAGE_OF_SWEEP:
            yield from self._declared(start, *TRAINING)
        elif want.type == MEASURE:
            yield from self._declared(start, *STAGES)
            if want.name == EXPECT:
                yield self._item(JOB, start, Kind.Module, detail="all stages together")
        elif want.type in STAGES:
            yield from self._declared(start, want.type)
        elif want.type in KINDS:
            yield from self._of_kind(want, reader, start)
        else:
            yield from self._scalars(want, reader, start)
        if want.optional:
            yield self._item("none", start, Kind.Constant, detail="without")

    def _of_kind(self, want: Param, reader: Reader, start: int) -> Items:
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
        yield from self._local(reader, start)

    def _builtin(self, builtin: Builtin, start: int) -> types.CompletionItem:
        insert = builtin.name if builtin.word else f"{builtin.name}($0)"
        kind = Kind.Constant if builtin.word else Kind.Function
        data = {"kind": builtin.kind, "name": builtin.name}
        return self._item(builtin.name, start, kind, insert, detail=builtin.doc, data=data)

    def _scalars(self, want: Param, reader: Reader, start: int) -> Items:
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
            yield from self._local(reader, start)

    def _value(self, value: str, start: int, insert: str) -> types.CompletionItem:
        known = describe.entry_of(value)
        doc = known and types.MarkupContent(types.MarkupKind.Markdown, describe.entry(known))
        detail = (known.reason or known.doc) if known else None
        return self._item(value, start, Kind.Value, insert, detail=detail, documentation=doc)

    def _declared(self, start: int, *kinds: str) -> Items:
        for decl in self.scope.values():
            if decl.kind in kinds and decl.name != self.within:
                insert = f"{decl.name}($0)" if decl.parameters is not None else decl.name
                doc = types.MarkupContent(types.MarkupKind.Markdown, describe.declared(decl))
                yield self._item(
                    decl.name, start, Kind.Variable, insert, detail=decl.kind, documentation=doc
                )

    def _local(self, reader: Reader, start: int) -> Items:
        being_written = {name for frame in reader.frames for name in frame.given[-1:]}
        if reader.frame.form == "parameters" and reader.frame.current is not None:
            being_written.add(reader.frame.current.name)
        for name, param in reader.locals.items():
            if name not in being_written:
                yield self._item(name, start, Kind.Variable, detail=param.doc)

    def _expression(self, reader: Reader, start: int) -> Items:
        yield from self._local(reader, start)
        is_loss = reader.decl is not None and reader.decl.kind == "loss"
        for each in INPUTS["loss" if is_loss else "reward"].values():
            yield self._item(each.name, start, Kind.Variable, detail=each.doc)
        for operation in OPERATIONS.values():
            if operation.usage.startswith(operation.name):
                insert = f"{operation.name}($0)"
                yield self._item(operation.name, start, Kind.Function, insert, detail=operation.doc)

    # Behind a point

    def _behind_point(self, reader: Reader, typed: str, start: int) -> Items:
        head, *inner = typed.split(".")
        want = reader.frame.expected
        behind = self.offset - len(inner[-1])
        for builtin in builtins_of(want.type) if want is not None else ():
            if builtin.name.startswith(f"{head}."):  # verl.grpo
                yield self._builtin(builtin, start)
        decl = self.scope.get(head)
        known = DECLARATIONS.get(decl.kind) if decl is not None else None
        if want is not None and want.type == MEASURE:
            after = ".".join([*inner[:-1], ""]).lstrip(".")
            for name in self._measured(head, decl, want.name == EXPECT):
                if name.startswith(after):
                    yield self._item(name[len(after) :], behind, Kind.Field)
            return
        in_field = reader.frame.form == "fields" and reader.frame.state in ("item", "after")
        names = [head, *inner[:-1]] if in_field else inner[:-1]
        params = reader.frame.params if in_field else known.fields if known else ()
        for name in names:
            params = fields_of(next((each for each in params if each.name == name), None))
        for param in params:
            yield self._item(param.name, behind, Kind.Field, detail=param.doc)

    def _measured(self, head: str, decl: Declared | None, in_advance: bool) -> Iterable[str]:
        """What is known of a stage after the run, and ``in_advance``: then of the whole job too."""
        estimates = ESTIMATES if in_advance else ()
        if decl is None:
            return estimates if head == JOB else ()
        stage = self.stages.get(head)
        measured = (name for name in metrics_of(stage) if "*" not in name) if stage else ()
        return (*measured, *estimates) if decl.kind in STAGES else ()

    # Strings

    def _in_string(self, reader: Reader, start: int) -> Items:
        frame = reader.frame
        typed = self.source.text[start : self.offset]
        want = frame.expected
        is_import = frame.form == "file" and frame.state == "head"
        if is_import:
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
        """Files and folders that go on as what is typed; only those with one of the endings."""
        folder, _, begun = typed.rpartition("/")
        shown = folder or ("/" if typed.startswith("/") else "")
        where = os.path.join(self.source.folder, os.path.expanduser(shown))
        try:
            found = sorted(os.scandir(where or "."), key=lambda item: item.name)
        except OSError:
            return
        for each in found:
            if each.name.startswith(".") and not begun.startswith("."):
                continue
            behind = self.offset - len(begun)
            if each.is_dir():
                yield self._item(f"{each.name}/", behind, Kind.Folder)
            elif not endings or each.name.endswith(endings):
                yield self._item(each.name, behind, Kind.File)


def resolved(item: types.CompletionItem) -> types.CompletionItem:
    """Add to a proposal what is said about it."""
    data = item.data if isinstance(item.data, Mapping) else {}
    text = None
    if (kind := data.get("declaration")) in DECLARATIONS:
        text = describe.declaration(DECLARATIONS[kind])
    elif (builtin := find_builtin(data.get("kind", ""), data.get("name", ""))) is not None:
        text = describe.builtin(builtin)
    if text is not None:
        item.documentation = types.MarkupContent(types.MarkupKind.Markdown, text)
    return item
