"""What an editor shows of a text as a whole: its declarations as a tree, the colours of its words,
and between them what it leaves unsaid: defaults, prices, how much epochs are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from lsprotocol import types

from rlc.catalog import STAGES
from rlc.check import Arguments, NamedDecl, Note, Role
from rlc.explanation import count, dollars
from rlc.lang import BlockDecl, Expectation, Span, ValueDecl
from rlc.lsp import describe
from rlc.lsp.documents import Document
from rlc.lsp.positions import Positions
from rlc.plan import Plan
from rlc.pricing import LEVELS, StageCost

MOST_DEFAULTS = 3  # shown at a call; its tooltip has the others

_KINDS = {
    "param": types.SymbolKind.Constant,
    "model": types.SymbolKind.Object,
    "env": types.SymbolKind.Interface,
}

# What a word of each role is for a theme; those that are missing have the colours of the grammar.
_TYPES: dict[Role, str] = {
    "kind": "keyword",
    "declares": "variable",
    "type": "type",
    "field": "property",
    "argument": "property",
    "key": "property",
    "builtin": "function",
    "function": "function",
    "word": "enumMember",
    "reference": "variable",
    "parameter": "parameter",
    "local": "variable",
    "input": "variable",
    "attribute": "property",
}
_MODIFIERS = ("declaration", "defaultLibrary")
LEGEND = types.SemanticTokensLegend(list(dict.fromkeys(_TYPES.values())), list(_MODIFIERS))


def document_symbols(document: Document, positions: Positions) -> list[types.DocumentSymbol]:
    """Return the declarations, each with its fields."""
    found = []

    def range_of(span: Span) -> types.Range:
        start = document.starts[span.source]
        return positions.range(start + span.start, start + span.end)

    for decl in (decl for chunk in document.chunks for decl in chunk.decls):
        if isinstance(decl, BlockDecl | ValueDecl):
            name, chosen, kind = decl.name.id, decl.name.span, decl.kind.id
        elif isinstance(decl, Expectation):
            name, chosen, kind = decl.comparison.span.text, decl.comparison.span, decl.kind.id
        else:
            name, chosen, kind = decl.path.value, decl.path.span, decl.kind.id
        fields = decl.fields if isinstance(decl, BlockDecl) else ()
        children = [
            types.DocumentSymbol(
                name=field.name.id,
                kind=types.SymbolKind.Field,
                range=range_of(field.span),
                selection_range=range_of(field.name.span),
                detail=" ".join(field.value.span.text.split())[:60],
            )
            for field in fields
        ]
        found.append(
            types.DocumentSymbol(
                name=name,
                kind=_KINDS.get(kind, types.SymbolKind.Class),
                range=range_of(decl.span),
                selection_range=range_of(chosen),
                detail=kind,
                children=children,
            )
        )
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
        data += [delta, since, end.character - start.character, kind, sum(_modifiers(at))]
        line, column = start.line, start.character
    return data


def _modifiers(at: Note) -> Iterator[int]:
    if at.role == "declares" or (at.role == "local" and at.want is None):
        yield 1
    elif at.what is not None and not isinstance(at.what, NamedDecl) and at.role != "parameter":
        yield 2


# What is unsaid

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
    """Return what is unsaid between two offsets. ``plan``: what the recipe last compiled to, with
    the ``costs`` of its stages."""
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
    """The names of arguments that are given by position, and the defaults of those that are not."""
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
    said = [f"{name} = {text}" for name, text in texts if text not in ("none", "…")]
    if said:
        more = ", …" if len(said) > MOST_DEFAULTS else ""
        label = f"{', ' if items else ''}{', '.join(said[:MOST_DEFAULTS])}{more}"
        tooltip = f"defaults: {', '.join(said)}"
        yield given.end - 1, label, types.InlayHintKind.Parameter, tooltip


def _of_plan(
    notes: Iterable[Note],
    arguments: Iterable[Arguments],
    plan: Plan,
    costs: Mapping[str, StageCost],
) -> Iterator[_Hint]:
    """Dollars of stages, and what was decided where the recipe leaves it open."""
    stages = {stage.name: stage for stage in plan.stages}
    models = {stage.model.name: stage.model for stage in plan.stages}
    heads = {}
    for at in notes:
        if at.role == "declares" and isinstance(at.what, NamedDecl):
            kind, name = at.what.kind.id, at.what.name.id
            heads[at.what.span] = name
            if kind in STAGES and name in costs:
                yield at.end, price_of(costs[name]), None, bill_of(costs[name])
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


def price_of(cost: StageCost) -> str:
    """Return what a stage is expected to cost."""
    return "free" if cost.free else f"about {dollars(cost.total('expected'))}"


def bill_of(cost: StageCost) -> str:
    """Return the range of what a stage can cost."""
    if cost.free:
        return "free: it runs on this machine, or on a server of your own"
    return ", ".join(f"{level} {dollars(cost.total(level))}" for level in LEVELS)
