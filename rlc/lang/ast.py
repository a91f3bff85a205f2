"""The syntax tree. Equality ignores spans, so a formatted recipe equals its source.

The nodes have no slots: attrs would make each class twice, whenever `rlc check` starts.
"""

from __future__ import annotations

from typing import TypeAlias

from rlc.lang.source import Span
from rlc.records import Record, field, frozen

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@frozen
class Node(Record):
    """Anything that came from text."""

    span: Span = field(eq=False, repr=False)


@frozen
class Expr(Node):
    """What may stand for a value."""


@frozen
class Name(Expr):
    id: str


@frozen
class Number(Expr):
    """``4e-5``, ``1_000``: an int where the text has neither point nor exponent."""

    value: int | float


@frozen
class Quantity(Expr):
    """A number with a unit: ``$60`` (unit "$"), ``7d`` (unit "d"), ``10%`` (unit "%")."""

    value: int | float
    unit: str


@frozen
class String(Expr):
    value: str


@frozen
class Bool(Expr):
    value: bool


@frozen
class ListExpr(Expr):
    items: tuple[Expr, ...]


@frozen
class RecordExpr(Expr):
    fields: tuple[Field, ...]


@frozen
class Attribute(Expr):
    """``policy.base``, ``verl.grpo``."""

    value: Expr
    attr: Name


@frozen
class Argument(Node):
    """``value`` or ``name = value`` inside a call."""

    name: Name | None
    value: Expr


@frozen
class Call(Expr):
    """``func(args)``; ``func`` is a Name or an Attribute."""

    func: Name | Attribute
    args: tuple[Argument, ...]


@frozen
class Amend(Expr):
    """``base { fields }``: a declared block, or one made by a call, with these fields replaced."""

    base: Name | Attribute | Call
    fields: tuple[Field, ...]


@frozen
class Binary(Expr):
    """``left op right``; op is one of ``+ - * / |> then`` or of :data:`COMPARISONS`."""

    op: str
    left: Expr
    right: Expr


@frozen
class Negative(Expr):
    operand: Expr


@frozen
class Field(Node):
    """``name = value`` inside braces. The name may have several parts: ``policy.lora_rank``."""

    name: Name
    value: Expr


@frozen
class Parameter(Node):
    """``name: type = default`` of a declaration. A type is a name, or a call with its range."""

    name: Name
    type: Expr | None
    default: Expr | None


@frozen
class BlockDecl(Node):
    """``kind name(parameters) { fields }``: model, train, sft, eval, loss, sweep, test.

    ``parameters`` is None without parentheses. ``unread`` names fields that are there but
    malformed: reported, and not missing.
    """

    kind: Name
    name: Name
    fields: tuple[Field, ...]
    parameters: tuple[Parameter, ...] | None = None
    unread: frozenset[str] = frozenset()


@frozen
class ValueDecl(Node):
    """``kind name: type = value``: param, env, advantage. ``type`` only where written;
    ``parameters`` is None without parentheses."""

    kind: Name
    name: Name
    type: Expr | None
    value: Expr
    parameters: tuple[Parameter, ...] | None = None


@frozen
class Expectation(Node):
    """``expect path < value``: the left side of ``comparison`` is a path."""

    kind: Name
    comparison: Binary


@frozen
class ImportDecl(Node):
    """``import "path"``."""

    kind: Name
    path: String


Decl: TypeAlias = BlockDecl | ValueDecl | Expectation | ImportDecl


@frozen
class Recipe(Node):
    """``unread`` names declarations that are there but malformed: reported, and not unknown."""

    decls: tuple[Decl, ...]
    unread: frozenset[str] = frozenset()
