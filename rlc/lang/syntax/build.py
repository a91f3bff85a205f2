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

        def compared(span: Span, left: ast.Expr, op: Token, right: ast.Expr) -> ast.Binary:
            return ast.Binary(span, text[op.start : op.end], left, right)

        # What builds the node of an action, from its span and what the rule keeps: nodes, and
        # tokens where the grammar has a terminal.
        self.makers: dict[str, Callable[..., Any]] = {
            "recipe": lambda _, *decls: ast.Recipe(Span(source, 0, len(text)), decls),
            "block": self.block,
            "value": lambda span, kind, name, *rest: ast.ValueDecl(
                span, word(kind), word(name), None, rest[-1], rest[0] if rest[1:] else None
            ),
            "typed_value": lambda span, kind, name, of, value: ast.ValueDecl(
                span, word(kind), word(name), of, value
            ),
            "import_": lambda span, kind, path: ast.ImportDecl(
                span, word(kind), string(Span(source, path.start, path.end))
            ),
            "expectation": lambda span, kind, left, op, right: ast.Expectation(
                span, word(kind), compared(Span(source, left.span.start, span.end), left, op, right)
            ),
            "parameters": lambda _, *parameters: parameters,
            "parameter": lambda span, name: ast.Parameter(span, word(name), None, None),
            "typed_parameter": lambda span, name, of: ast.Parameter(span, word(name), of, None),
            "default_parameter": lambda span, name, value: ast.Parameter(
                span, word(name), None, value
            ),
            "whole_parameter": lambda span, name, of, value: ast.Parameter(
                span, word(name), of, value
            ),
            "field": lambda span, name, value: ast.Field(span, word(name), value),
            "dotted_field": self.dotted_field,
            "call": lambda span, func, *args: ast.Call(span, func, args),
            "amend": lambda span, base, *fields: ast.Amend(span, base, fields),
            "compare": compared,
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

    def __call__(self, action: str, children: list[Any], start: int, end: int) -> Any:
        return self.makers[action](Span(self.source, start, end), *children)

    def block(self, span: Span, kind: Token, name: Token, *rest: Any) -> ast.BlockDecl:
        has_parameters = bool(rest) and isinstance(rest[0], tuple)
        parameters, fields = (rest[0], rest[1:]) if has_parameters else (None, rest)
        return ast.BlockDecl(span, self.word(kind), self.word(name), fields, parameters)

    def dotted_field(self, span: Span, *parts: Any) -> ast.Field:
        *words, value = parts
        names = [self.word(word) for word in words]
        path = ".".join(name.id for name in names)
        return ast.Field(span, ast.Name(names[0].span.to(names[-1].span), path), value)

    def word(self, token: Token) -> ast.Name:
        _, start, end = token
        return ast.Name(Span(self.source, start, end), self.source.text[start:end])
