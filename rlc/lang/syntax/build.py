"""Syntax tree nodes from what the LALR machine reduces: one method for each rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlc.lang.ast import (
    Argument,
    Attribute,
    Binary,
    BlockDecl,
    Bool,
    Call,
    Decl,
    Expr,
    Field,
    ImportDecl,
    ListExpr,
    Name,
    Negative,
    Number,
    Quantity,
    Recipe,
    RecordExpr,
    String,
    ValueDecl,
)
from rlc.lang.source import Source, Span
from rlc.lang.syntax.lalr import Token
from rlc.lang.syntax.lexer import number_value, string_value

OPERATORS = {
    "then": "then",
    "pipe": "|>",
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
}


class TreeBuilder:
    """Builds the nodes of one source; calling it is the machine's ``build``."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._text = source.text
        self._made: dict[str, Callable[..., Any]] = {}

    def __call__(self, action: str, children: list[Any], start: int, end: int) -> Any:
        make = self._made.get(action)
        if make is None:
            make = self._made[action] = self._maker(action)
        return make(Span(self.source, start, end), *children)

    def _maker(self, action: str) -> Callable[..., Any]:
        """What builds the node of an action."""
        if action in OPERATORS:
            return lambda span, left, right: Binary(span, OPERATORS[action], left, right)
        made: Callable[..., Any] = getattr(self, f"_{action}")
        return made

    def _recipe(self, _: Span, *decls: Decl) -> Recipe:
        return Recipe(Span(self.source, 0, len(self.source.text)), decls)

    def _block(self, span: Span, kind: Token, name: Token, *fields: Field) -> BlockDecl:
        return BlockDecl(span, self.word(kind), self.word(name), fields)

    def _value(self, span: Span, kind: Token, name: Token, value: Expr) -> ValueDecl:
        return ValueDecl(span, self.word(kind), self.word(name), None, value)

    def _typed_value(
        self, span: Span, kind: Token, name: Token, type: Token, value: Expr
    ) -> ValueDecl:
        return ValueDecl(span, self.word(kind), self.word(name), self.word(type), value)

    def _import_(self, span: Span, kind: Token, path: Token) -> ImportDecl:
        where = Span(self.source, path.start, path.end)
        return ImportDecl(span, self.word(kind), self._string(where, path))

    def _field(self, span: Span, name: Token, value: Expr) -> Field:
        return Field(span, self.word(name), value)

    def _call(self, span: Span, func: Name | Attribute, *args: Argument) -> Call:
        return Call(span, func, args)

    def _positional(self, span: Span, value: Expr) -> Argument:
        return Argument(span, None, value)

    def _named(self, span: Span, name: Token, value: Expr) -> Argument:
        return Argument(span, self.word(name), value)

    def _attribute(self, span: Span, value: Expr, attr: Token) -> Attribute:
        return Attribute(span, value, self.word(attr))

    def _negative(self, span: Span, operand: Expr) -> Negative:
        return Negative(span, operand)

    def _list(self, span: Span, *items: Expr) -> ListExpr:
        return ListExpr(span, items)

    def _record(self, span: Span, *fields: Field) -> RecordExpr:
        return RecordExpr(span, fields)

    def _name(self, span: Span, _: Token) -> Name:
        return Name(span, self._text[span.start : span.end])

    def _number(self, span: Span, _: Token) -> Number:
        return Number(span, number_value(self._text[span.start : span.end]))

    def _money(self, span: Span, _: Token) -> Quantity:
        return Quantity(span, number_value(span.text[1:]), "$")

    def _duration(self, span: Span, _: Token) -> Quantity:
        return Quantity(span, number_value(span.text[:-1]), span.text[-1])

    def _percent(self, span: Span, _: Token) -> Quantity:
        return Quantity(span, number_value(span.text[:-1]), "%")

    def _string(self, span: Span, _: Token) -> String:
        return String(span, string_value(span.text))

    def _true(self, span: Span) -> Bool:
        return Bool(span, True)

    def _false(self, span: Span) -> Bool:
        return Bool(span, False)

    def word(self, token: Token) -> Name:
        """A plain name where the grammar wants one."""
        _, start, end = token
        return Name(Span(self.source, start, end), self._text[start:end])
