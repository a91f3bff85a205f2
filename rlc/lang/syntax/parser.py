"""Text to syntax tree. Never raises: every mistake is a diagnostic, the rest is still read."""

from __future__ import annotations

from rlc.lang.ast import Expr, Name, Recipe
from rlc.lang.diagnostics import Diagnostic, Diagnostics
from rlc.lang.source import Source, Span
from rlc.lang.syntax.build import TreeBuilder
from rlc.lang.syntax.lalr import MAX_FINDINGS, Stuck, run
from rlc.lang.syntax.lexer import lex
from rlc.lang.syntax.tables import load_tables


def parse(source: Source) -> tuple[Recipe, Diagnostics]:
    """Return the recipe in ``source`` and its syntax errors, ordered by place.

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
        from rlc.lang.syntax.recover import recover  # only needed for a recipe with mistakes

        recipe, syntax = recover(source, tables, lexed)
        found += syntax
    return recipe, Diagnostics(sorted(found, key=_place)[:MAX_FINDINGS])


def parse_field(source: Source) -> tuple[tuple[list[Name], Expr] | None, Diagnostics]:
    """Return the dotted path and the value of ``main.steps=10``, and its syntax errors.

    The first is None if it is not written ``path=value``.
    """
    tables = load_tables()
    lexed = lex(source, tables)
    found = Diagnostics(lexed.diagnostics)
    kinds = [token.kind for token in lexed.tokens]
    equal = kinds.index("EQUAL") if "EQUAL" in kinds else 0
    names, dots = kinds[:equal:2], kinds[1:equal:2]
    if equal % 2 == 0 or {*names} != {"NAME"} or not {*dots} <= {"DOT"}:
        if not found:
            span = Span(source, 0, len(source.text))
            advice = "for example `--set main.steps=10`"
            found.error("RL0106", span, "an override is written `name=value`", advice)
        return None, found
    build = TreeBuilder(source)
    tokens = lexed.tokens[equal - 1 :]  # `steps=10` of `main.steps=10` is a field
    field = run(tables, "field", tokens, build)
    if isinstance(field, Stuck):
        if not found:
            from rlc.lang.syntax.recover import report_stuck

            report_stuck(source, tables, "field", tokens, field, found)
        return None, found
    return ([build.word(token) for token in lexed.tokens[:equal:2]], field.value), found


def _place(diagnostic: Diagnostic) -> tuple[int, int]:
    span = diagnostic.span
    return (span.start, span.end) if span else (0, 0)
