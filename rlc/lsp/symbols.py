"""The declarations of a text as a tree, and the colours of its words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lsprotocol import types

from rlc.lang.ast import BlockDecl, Expectation, Recipe, ValueDecl
from rlc.lsp.frames import Meaning, Role
from rlc.lsp.outline import Declared
from rlc.lsp.positions import Positions

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


def document_symbols(recipe: Recipe, positions: Positions) -> list[types.DocumentSymbol]:
    """Return the declarations, each with its fields."""
    found = []
    for decl in recipe.decls:
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
                range=positions.of(field.span),
                selection_range=positions.of(field.name.span),
                detail=" ".join(field.value.span.text.split())[:60],
            )
            for field in fields
        ]
        found.append(
            types.DocumentSymbol(
                name=name,
                kind=_KINDS.get(kind, types.SymbolKind.Class),
                range=positions.of(decl.span),
                selection_range=positions.of(chosen),
                detail=kind,
                children=children,
            )
        )
    return found


def semantic_tokens(meanings: Sequence[Meaning], positions: Positions) -> list[int]:
    """Return the words in the protocol's form: five numbers each, relative to the one before."""
    data: list[int] = []
    line = column = 0
    for at in sorted(meanings, key=lambda at: at.start):
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


def _modifiers(at: Meaning) -> Iterator[int]:
    if at.role == "declares" or (at.role == "local" and at.want is None):
        yield 1
    elif at.what is not None and not isinstance(at.what, Declared) and at.role != "parameter":
        yield 2
