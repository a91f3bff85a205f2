"""An open text in the form of the protocol: what a check finds in it, edits that fix or format it,
its declarations as a tree, the colours of its words, and hints of what it leaves out.

Places are counted in lines, and UTF-16 units or what was agreed on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from attrs import evolve, field, frozen
from lsprotocol import types

from rlc.catalog import STAGES, reread_providers
from rlc.check import Arguments, NamedDecl, Note, Role
from rlc.compile import CompileResult, compile_source
from rlc.data import Reader
from rlc.explanation import count, dollars, price
from rlc.lang import (
    BlockDecl,
    Diagnostic,
    Diagnostics,
    Expectation,
    Fix,
    Severity,
    Source,
    Span,
    ValueDecl,
    fix_all,
    format_text,
)
from rlc.lang.syntax import parse
from rlc.lsp import describe
from rlc.lsp.documents import Document, Documents, uri_of
from rlc.plan import Plan
from rlc.pricing import StageCost, plan_cost

UTF16 = "utf-16"
_BYTES = {"utf-8": ("utf-8", 1), UTF16: ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


class Positions:
    """Converts between offsets in characters and positions, in units of an ``encoding``."""

    def __init__(self, source: Source, encoding: str = UTF16) -> None:
        self.source = source
        self._codec, self._size = _BYTES[encoding]

    def at(self, offset: int) -> types.Position:
        """Return the position of an offset."""
        line, column = self.source.position(offset)
        before = self.source.line(line)[: column - 1]
        units = column - 1 if before.isascii() else len(before.encode(self._codec)) // self._size
        return types.Position(line - 1, units)

    def offset(self, position: types.Position) -> int:
        """Return the offset of a position, of one behind the end of a line or text that end. One
        within a character is before it."""
        starts, number = self.source.line_starts, int(position.line)
        if number >= len(starts):
            return len(self.source.text)
        line, units = self.source.line(number + 1), int(position.character)
        if line.isascii():
            return starts[number] + min(units, len(line))
        before = line.encode(self._codec)[: units * self._size]
        return starts[number] + len(before.decode(self._codec, "ignore"))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.at(start), self.at(end))

    def of(self, span: Span) -> types.Range:
        """Return the range of a span of this source."""
        return self.range(span.start, span.end)


NAME = "rlc"
NO_STAGE = "RL0301"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
}


@frozen(eq=False)
class CheckedText:
    """A text, what it compiled to, and the costs of the stages of its plan by name."""

    document: Document
    compiled: CompileResult
    costs: Mapping[str, StageCost] = field(factory=dict)

    def by_path(self) -> dict[str, list[Diagnostic]]:
        """Return the findings by file: some are in imported ones."""
        found: dict[str, list[Diagnostic]] = defaultdict(list)
        for item in self.compiled.diagnostics:
            found[item.file_name].append(item)
        return found


def check(documents: Documents, document: Document) -> CheckedText:
    """Check an open text as `rlc check` would, had it and what it imports been saved. A file of the
    project that others import needs no stage, and a text that is not begun has no mistakes."""
    if not document.source.text.strip():
        return CheckedText(document, CompileResult(None, Diagnostics()))
    compiled = _compiled(documents, document.source)
    if any(item.code == NO_STAGE for item in compiled.diagnostics) and any(
        document.path in other.imports for other in documents.project()
    ):
        rest = (item for item in compiled.diagnostics if item.code != NO_STAGE)
        compiled = evolve(compiled, diagnostics=Diagnostics(rest))
    costs = plan_cost(compiled.plan) if compiled.plan is not None else ()
    return CheckedText(document, compiled, {cost.stage: cost for cost in costs})


def _compiled(documents: Documents, source: Source) -> CompileResult:
    reread_providers()
    return compile_source(source, reader=Reader(), read=documents.read)


def fixed_text(documents: Documents, document: Document) -> str:
    """Return a text with all its safe fixes."""
    fixed = fix_all(document.source, lambda source: _compiled(documents, source).diagnostics)
    return fixed.source.text


def as_diagnostic(item: Diagnostic, encoding: str) -> types.Diagnostic:
    """Return a finding as editors show it."""

    def location(span: Span) -> types.Location:
        where = Positions(span.source, encoding).of(span)
        return types.Location(uri_of(span.source.name), where)

    start = types.Range(types.Position(0, 0), types.Position(0, 0))
    return types.Diagnostic(
        range=location(item.span).range if item.span else start,
        message=f"{item.message}\nhelp: {item.help}" if item.help else item.message,
        severity=_SEVERITIES[item.severity],
        code=item.code,
        source=NAME,
        related_information=[
            types.DiagnosticRelatedInformation(location(label.span), label.text)
            for label in item.labels
        ],
    )


def fix_actions(
    found: Iterable[Diagnostic], document: Document, asked: types.Range, encoding: str
) -> Iterator[types.CodeAction]:
    """Return the fixes of what is found in a part of a text, those first that need no thought."""
    positions = Positions(document.source, encoding)
    start, end = positions.offset(asked.start), positions.offset(asked.end)
    for item in found:
        span = item.span
        if item.fix is None or span is None or span.source.name != document.path:
            continue
        if span.start <= end and start <= span.end:
            yield types.CodeAction(
                title=item.fix.title[:1].upper() + item.fix.title[1:],
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[as_diagnostic(item, encoding)],
                is_preferred=item.fix.safe,
                edit=_edit(item.fix, encoding),
            )


def _edit(fix: Fix, encoding: str) -> types.WorkspaceEdit:
    changes: dict[str, list[types.TextEdit]] = defaultdict(list)
    for span, text in fix.edits:
        edit = types.TextEdit(Positions(span.source, encoding).of(span), text)
        changes[uri_of(span.source.name)].append(edit)
    return types.WorkspaceEdit(changes=changes)


def line_edits(source: Source, new: str, encoding: str) -> list[types.TextEdit]:
    """Return the edits that make a text a new one and leave equal lines alone."""
    positions = Positions(source, encoding)
    before, after = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (source.text, new))
    starts = [0]
    for line in before:
        starts.append(starts[-1] + len(line))
    edits = []
    for tag, i, j, k, m in SequenceMatcher(None, before, after).get_opcodes():
        if tag != "equal":
            where = positions.range(starts[i], starts[j])
            edits.append(types.TextEdit(where, "".join(after[k:m])))
    return edits


def format_edits(source: Source, encoding: str) -> list[types.TextEdit] | None:
    """Return the edits that lay a recipe out the canonical way; None if it has syntax errors."""
    recipe, problems = parse(source)
    if problems.has_errors or not source.text.strip():
        return None
    return line_edits(source, format_text(source, recipe), encoding)


MOST_DEFAULTS = 3  # shown at a call; its tooltip has the others

_KINDS = {
    "param": types.SymbolKind.Constant,
    "model": types.SymbolKind.Object,
    "env": types.SymbolKind.Interface,
}

# The type of a word for a theme, by its role; other roles have the colours of the grammar.
_VARIABLES: tuple[Role, ...] = ("declares", "reference", "local", "input")
_PROPERTIES: tuple[Role, ...] = ("field", "argument", "key", "attribute")
_TYPES: dict[Role, str] = {
    "kind": "keyword",
    **dict.fromkeys(_VARIABLES, "variable"),
    "type": "type",
    **dict.fromkeys(_PROPERTIES, "property"),
    "builtin": "function",
    "function": "function",
    "word": "enumMember",
    "parameter": "parameter",
}
_MODIFIERS = ("declaration", "defaultLibrary")
LEGEND = types.SemanticTokensLegend(list(dict.fromkeys(_TYPES.values())), list(_MODIFIERS))


def document_symbols(document: Document, positions: Positions) -> list[types.DocumentSymbol]:
    """Return the declarations, each with its fields."""
    found = []

    def symbol(
        name: str, kind: types.SymbolKind, detail: str, span: Span, chosen: Span
    ) -> types.DocumentSymbol:
        start = document.starts[span.source]
        ranges = (positions.range(start + s.start, start + s.end) for s in (span, chosen))
        return types.DocumentSymbol(name, kind, *ranges, detail)

    for decl in (decl for chunk in document.chunks for decl in chunk.decls):
        if isinstance(decl, BlockDecl | ValueDecl):
            name, chosen = decl.name.id, decl.name.span
        elif isinstance(decl, Expectation):
            name, chosen = decl.comparison.span.text, decl.comparison.span
        else:
            name, chosen = decl.path.value, decl.path.span
        kind = _KINDS.get(decl.kind.id, types.SymbolKind.Class)
        found.append(symbol(name, kind, decl.kind.id, decl.span, chosen))
        found[-1].children = []
        for part in decl.fields if isinstance(decl, BlockDecl) else ():
            text = " ".join(part.value.span.text.split())[:60]
            own = part.name.id, types.SymbolKind.Field, text, part.span, part.name.span
            found[-1].children.append(symbol(*own))
    return found


def semantic_tokens(notes: Iterable[Note], positions: Positions) -> list[int]:
    """Return the words in the protocol's form: five numbers each, relative to the one before."""
    data: list[int] = []
    line = column = 0
    for at in notes:
        if at.role not in _TYPES:
            continue
        start, end = positions.at(at.start), positions.at(at.end)
        delta = start.line - line
        if delta == 0 and data and start.character == column:
            continue
        kind = LEGEND.token_types.index(_TYPES[at.role])
        since = start.character - (column if delta == 0 else 0)
        data += [delta, since, end.character - start.character, kind, _modifier(at)]
        line, column = start.line, start.character
    return data


def _modifier(at: Note) -> int:
    """Return the bit of a word's modifier in the legend, 0 without one."""
    if at.role == "declares" or (at.role == "local" and at.want is None):
        return 1
    is_known = at.what is not None and not isinstance(at.what, NamedDecl)
    return 2 if is_known and at.role != "parameter" else 0


_Hint = tuple[int, str, types.InlayHintKind | None, str | None]


def inlay_hints(
    text: str,
    notes: Sequence[Note],
    arguments: Sequence[Arguments],
    plan: Plan | None,
    costs: Mapping[str, StageCost],
    positions: Positions,
    start: int,
    end: int,
) -> list[types.InlayHint]:
    """Return the hints between two offsets. ``plan``: what the recipe last compiled to, with the
    ``costs`` of its stages."""
    calls = {(each.start, each.end): each for each in arguments if each.is_call and each.owner}
    found = [hint for given in calls.values() for hint in _of_call(given, text)]
    if plan is not None:
        found += _of_plan(notes, arguments, plan, costs)
    return [
        types.InlayHint(
            positions.at(offset),
            label,
            kind=kind,
            tooltip=tooltip,
            padding_left=kind is None,
            padding_right=label.endswith("="),
        )
        for offset, label, kind, tooltip in sorted(found, key=lambda hint: hint[0])
        if start <= offset <= end
    ]


def _of_call(given: Arguments, text: str) -> Iterator[_Hint]:
    """Yield the names of positional arguments, and the defaults of missing ones."""
    params, items = given.params, given.items
    unnamed = [item.span.start + given.by for item in items if item.name is None]
    if len(params) > 1:
        for param, offset in zip(params, unnamed, strict=False):
            if not text.startswith(param.name, offset):
                yield offset, f"{param.name} =", types.InlayHintKind.Parameter, param.doc
    named = {item.name.id for item in items if item.name is not None}
    named |= {param.name for param in params[: len(unnamed)]}
    left = [p for p in params if p.name not in named and not p.required]
    texts = [(param.name, describe.default_text(param)) for param in left]
    defaults = [f"{name} = {text}" for name, text in texts if text not in ("none", "…")]
    if defaults:
        more = ", …" if len(defaults) > MOST_DEFAULTS else ""
        label = f"{', ' if items else ''}{', '.join(defaults[:MOST_DEFAULTS])}{more}"
        tooltip = f"defaults: {', '.join(defaults)}"
        yield given.end - 1, label, types.InlayHintKind.Parameter, tooltip


def _of_plan(
    notes: Iterable[Note],
    arguments: Iterable[Arguments],
    plan: Plan,
    costs: Mapping[str, StageCost],
) -> Iterator[_Hint]:
    """Yield the costs of stages, and what the plan decides where the recipe leaves it open."""
    stages = {stage.name: stage for stage in plan.stages}
    models = {stage.model.name: stage.model for stage in plan.stages}
    heads = {}
    for at in notes:
        if at.role == "declares" and isinstance(at.what, NamedDecl):
            kind, name = at.what.kind.id, at.what.name.id
            heads[at.what.span] = name
            if kind in STAGES and name in costs:
                cost = costs[name]
                expected = cost.total("expected")
                about = f"about {dollars(expected)}" if expected.known else "cost unknown"
                about = "free" if cost.free else about
                yield at.end, about, None, price([cost])
            elif kind == "model" and name in models:
                label = ", ".join(filter(None, (models[name].service, models[name].renderer)))
                yield at.end, label, None, "where it is trained, and how a chat becomes tokens"
    for block in (each for each in arguments if not each.is_call and each.span in heads):
        name = heads[block.span]
        for item in block.items:
            written = item.span.source is block.span.source and item.name is not None
            if written and item.name.id == "epochs" and name in stages:  # type: ignore[union-attr]
                steps = count(stages[name].steps or 0, "step")
                yield item.span.end + block.by, f"= {steps}", None, f"`{name}` in steps"
