"""Text to syntax tree. Never raises: every mistake is a diagnostic, the rest is still read."""

from __future__ import annotations

from rlc.lang.ast import Recipe
from rlc.lang.build import TreeBuilder
from rlc.lang.diagnostics import Diagnostic, Diagnostics
from rlc.lang.lalr import Stuck, run
from rlc.lang.lexer import MAX_FINDINGS, lex
from rlc.lang.source import Source, Span
from rlc.lang.tables import load_tables


def parse(source: Source) -> tuple[Recipe, Diagnostics]:
    """The recipe in ``source`` and its syntax errors, ordered by place.

    The recipe holds every declaration, and in it every field, that could be read for certain;
    its ``unread`` and its blocks' ``unread`` name the others.
    """
    tables = load_tables()
    lexed = lex(source, tables)
    found = list(lexed.diagnostics)
    if len(found) >= MAX_FINDINGS:
        return Recipe(Span(source, 0, len(source.text)), ()), Diagnostics(found[:MAX_FINDINGS])
    recipe = run(tables, "recipe", lexed.tokens, TreeBuilder(source))
    if lexed.doubtful or isinstance(recipe, Stuck):
        from rlc.lang.recover import recover  # only needed for a recipe with mistakes

        recipe, syntax = recover(source, tables, lexed)
        found += syntax
    return recipe, Diagnostics(sorted(found, key=_place)[:MAX_FINDINGS])


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.span
    return (span.start, span.end) if span else (0, 0)
