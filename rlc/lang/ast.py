"""The syntax tree. Equality ignores spans, so a formatted recipe equals its source."""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen

from rlc.lang.source import Span
from rlc.records import Record


@frozen(eq=False, repr=False)
class Node(Record):
    """Anything that came from text."""

    span: Span = field(eq=False, repr=False)


@frozen(eq=False, repr=False)
class Expr(Node):
    """What may stand for a value."""


@frozen(eq=False, repr=False)
class Name(Expr):
    id: str


@frozen(eq=False, repr=False)
class Number(Expr):
    """``4e-5``, ``1_000``: an int where the text has neither point nor exponent."""

    value: int | float


@frozen(eq=False, repr=False)
class Quantity(Expr):
    """A number with a unit: ``$60`` (unit "$"), ``7d`` (unit "d"), ``10%`` (unit "%")."""

    value: int | float
    unit: str


@frozen(eq=False, repr=False)
class String(Expr):
    value: str


@frozen(eq=False, repr=False)
class Bool(Expr):
    value: bool


@frozen(eq=False, repr=False)
class ListExpr(Expr):
    items: tuple[Expr, ...]


@frozen(eq=False, repr=False)
class RecordExpr(Expr):
    fields: tuple[Field, ...]


@frozen(eq=False, repr=False)
class Attribute(Expr):
    """``policy.base``, ``verl.grpo``."""

    value: Expr
    attr: Name


@frozen(eq=False, repr=False)
class Argument(Node):
    """``value`` or ``name = value`` inside a call."""

    name: Name | None
    value: Expr


@frozen(eq=False, repr=False)
class Call(Expr):
    """``func(args)``; ``func`` is a Name or an Attribute."""

    func: Name | Attribute
    args: tuple[Argument, ...]


@frozen(eq=False, repr=False)
class Binary(Expr):
    """``left op right``; op is one of ``+ - * / |> then``."""

    op: str
    left: Expr
    right: Expr


@frozen(eq=False, repr=False)
class Negative(Expr):
    operand: Expr


@frozen(eq=False, repr=False)
class Field(Node):
    """``name = value`` inside braces."""

    name: Name
    value: Expr


@frozen(eq=False, repr=False)
class BlockDecl(Node):
    """``kind name { fields }``: model, train, sft, eval.

    ``unread`` names fields that are there but malformed: reported, and not missing.
    """

    kind: Name
    name: Name
    fields: tuple[Field, ...]
    unread: frozenset[str] = frozenset()


@frozen(eq=False, repr=False)
class ValueDecl(Node):
    """``kind name: type = value``: param, env, advantage. ``type`` only where written."""

    kind: Name
    name: Name
    type: Name | None
    value: Expr


@frozen(eq=False, repr=False)
class ImportDecl(Node):
    """``import "path"``."""

    kind: Name
    path: String


Decl: TypeAlias = BlockDecl | ValueDecl | ImportDecl


@frozen(eq=False, repr=False)
class Recipe(Node):
    """``unread`` names declarations that are there but malformed: reported, and not unknown."""

    decls: tuple[Decl, ...]
    unread: frozenset[str] = frozenset()
