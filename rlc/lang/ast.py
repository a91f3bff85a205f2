"""The syntax tree. Equality ignores spans, so a formatted recipe equals its source."""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen

from rlc.lang.source import Span


@frozen
class Node:
    """Anything that came from text."""

    span: Span = field(eq=False, repr=False)


@frozen
class Name(Node):
    id: str


@frozen
class Number(Node):
    """``4e-5``, ``1_000``: an int where the text has neither point nor exponent."""

    value: int | float


@frozen
class Quantity(Node):
    """A number with a unit: ``$60`` (unit "$"), ``7d`` (unit "d"), ``10%`` (unit "%")."""

    value: int | float
    unit: str


@frozen
class String(Node):
    value: str


@frozen
class Bool(Node):
    value: bool


@frozen
class ListExpr(Node):
    items: tuple[Expr, ...]


@frozen
class RecordExpr(Node):
    fields: tuple[Field, ...]


@frozen
class Attribute(Node):
    """``policy.base``, ``verl.grpo``."""

    value: Expr
    attr: Name


@frozen
class Argument(Node):
    """``value`` or ``name = value`` inside a call."""

    name: Name | None
    value: Expr


@frozen
class Call(Node):
    """``func(args)``; ``func`` is a Name or an Attribute."""

    func: Name | Attribute
    args: tuple[Argument, ...]


@frozen
class Binary(Node):
    """``left op right``; op is one of ``+ - * / |> then``."""

    op: str
    left: Expr
    right: Expr


@frozen
class Negative(Node):
    operand: Expr


Expr: TypeAlias = (
    Name
    | Number
    | Quantity
    | String
    | Bool
    | ListExpr
    | RecordExpr
    | Attribute
    | Call
    | Binary
    | Negative
)


@frozen
class Field(Node):
    """``name = value`` inside braces."""

    name: Name
    value: Expr


@frozen
class BlockDecl(Node):
    """``kind name { fields }``: model, train, sft, eval.

    ``unread`` names fields that are there but malformed: reported, and not missing.
    """

    kind: Name
    name: Name
    fields: tuple[Field, ...]
    unread: frozenset[str] = frozenset()


@frozen
class ValueDecl(Node):
    """``kind name: type = value``: param, env, advantage. ``type`` only where written."""

    kind: Name
    name: Name
    type: Name | None
    value: Expr


@frozen
class ImportDecl(Node):
    """``import "path"``."""

    kind: Name
    path: String


Decl: TypeAlias = BlockDecl | ValueDecl | ImportDecl


@frozen
class Recipe(Node):
    """``unread`` names declarations that are there but malformed: reported, and not unknown."""

    decls: tuple[Decl, ...]
    unread: frozenset[str] = frozenset()
