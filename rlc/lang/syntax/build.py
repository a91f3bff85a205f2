"""Syntax tree nodes from what the LALR machine reduces: one entry for each rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlc.lang import ast
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import Token
from rlc.lang.syntax.lexer import number_value, string_value


class TreeBuilder:
    """Builds the nodes of one source; calling it is the machine's ``build``."""

    def __init__(self, source: Source) -> None:
        self.source = source
        text, word = source.text, self.word

        def string(span: Span) -> ast.String:
            return ast.String(span, string_value(span.text))

        def with_unit(span: Span) -> ast.Quantity:
            return ast.Quantity(span, number_value(span.text[:-1]), span.text[-1])

        # What builds the node of an action, from its span and what the rule keeps: nodes, and
        # tokens where the grammar has a terminal.
        self.makers: dict[str, Callable[..., ast.Node]] = {
            "recipe": lambda _, *decls: ast.Recipe(Span(source, 0, len(text)), decls),
            "block": lambda span, kind, name, *fields: ast.BlockDecl(
                span, word(kind), word(name), fields
            ),
            "value": lambda span, kind, name, value: ast.ValueDecl(
                span, word(kind), word(name), None, value
            ),
            "typed_value": lambda span, kind, name, of, value: ast.ValueDecl(
                span, word(kind), word(name), word(of), value
            ),
            "import_": lambda span, kind, path: ast.ImportDecl(
                span, word(kind), string(Span(source, path.start, path.end))
            ),
            "field": lambda span, name, value: ast.Field(span, word(name), value),
            "call": lambda span, func, *args: ast.Call(span, func, args),
            "positional": lambda span, value: ast.Argument(span, None, value),
            "named": lambda span, name, value: ast.Argument(span, word(name), value),
            "attribute": lambda span, value, attr: ast.Attribute(span, value, word(attr)),
            "negative": ast.Negative,
            "list": lambda span, *items: ast.ListExpr(span, items),
            "record": lambda span, *fields: ast.RecordExpr(span, fields),
            "name": lambda span, _: ast.Name(span, text[span.start : span.end]),
            "number": lambda span, _: ast.Number(span, number_value(span.text)),
            "money": lambda span, _: ast.Quantity(span, number_value(span.text[1:]), "$"),
            "duration": lambda span, _: with_unit(span),
            "percent": lambda span, _: with_unit(span),
            "string": lambda span, _: string(span),
            "true": lambda span: ast.Bool(span, True),
            "false": lambda span: ast.Bool(span, False),
            "then": lambda span, left, right: ast.Binary(span, "then", left, right),
            "pipe": lambda span, left, right: ast.Binary(span, "|>", left, right),
            "add": lambda span, left, right: ast.Binary(span, "+", left, right),
            "subtract": lambda span, left, right: ast.Binary(span, "-", left, right),
            "multiply": lambda span, left, right: ast.Binary(span, "*", left, right),
            "divide": lambda span, left, right: ast.Binary(span, "/", left, right),
        }

    def __call__(self, action: str, children: list[Any], start: int, end: int) -> ast.Node:
        return self.makers[action](Span(self.source, start, end), *children)

    def word(self, token: Token) -> ast.Name:
        """A plain name where the grammar wants one."""
        _, start, end = token
        return ast.Name(Span(self.source, start, end), self.source.text[start:end])
