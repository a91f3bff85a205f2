"""The syntax tree. Equality ignores spans, so a formatted recipe equals its source.

The nodes have no slots: attrs would make each class twice, whenever `rlc check` starts.
"""

from __future__ import annotations

from typing import TypeAlias

from attrs import field, frozen

from rlc.lang.source import Span
from rlc.records import Record

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


@frozen(eq=False, repr=False, slots=False)
class Node(Record):
    """Anything that came from text."""

    span: Span = field(eq=False, repr=False)


@frozen(eq=False, repr=False, slots=False)
class Expr(Node):
    """What may stand for a value."""


@frozen(eq=False, repr=False, slots=False)
class Name(Expr):
    id: str


@frozen(eq=False, repr=False, slots=False)
class Number(Expr):
    """``4e-5``, ``1_000``: an int where the text has neither point nor exponent."""

    value: int | float


@frozen(eq=False, repr=False, slots=False)
class Quantity(Expr):
    """A number with a unit: ``$60`` (unit "$"), ``7d`` (unit "d"), ``10%`` (unit "%")."""

    value: int | float
    unit: str


@frozen(eq=False, repr=False, slots=False)
class String(Expr):
    value: str


@frozen(eq=False, repr=False, slots=False)
class Bool(Expr):
    value: bool


@frozen(eq=False, repr=False, slots=False)
class ListExpr(Expr):
    items: tuple[Expr, ...]


@frozen(eq=False, repr=False, slots=False)
class RecordExpr(Expr):
    fields: tuple[Field, ...]


@frozen(eq=False, repr=False, slots=False)
class Attribute(Expr):
    """``policy.base``, ``verl.grpo``."""

    value: Expr
    attr: Name


@frozen(eq=False, repr=False, slots=False)
class Argument(Node):
    """``value`` or ``name = value`` inside a call."""

    name: Name | None
    value: Expr


@frozen(eq=False, repr=False, slots=False)
class Call(Expr):
    """``func(args)``; ``func`` is a Name or an Attribute."""

    func: Name | Attribute
    args: tuple[Argument, ...]


@frozen(eq=False, repr=False, slots=False)
class Amend(Expr):
    """``base { fields }``: a declared block, or one made by a call, with these fields replaced."""

    base: Name | Attribute | Call
    fields: tuple[Field, ...]


@frozen(eq=False, repr=False, slots=False)
class Binary(Expr):
    """``left op right``; op is one of ``+ - * / |> then`` or of :data:`COMPARISONS`."""

    op: str
    left: Expr
    right: Expr


@frozen(eq=False, repr=False, slots=False)
class Negative(Expr):
    operand: Expr


@frozen(eq=False, repr=False, slots=False)
class Field(Node):
    """``name = value`` inside braces. The name may have several parts: ``policy.lora_rank``."""

    name: Name
    value: Expr


@frozen(eq=False, repr=False, slots=False)
class Parameter(Node):
    """``name: type = default`` of a declaration. A type is a name, or a call with its range."""

    name: Name
    type: Expr | None
    default: Expr | None


@frozen(eq=False, repr=False, slots=False)
class BlockDecl(Node):
    """``kind name(parameters) { fields }``: model, train, sft, eval, loss, sweep.

    ``parameters`` is None without parentheses. ``unread`` names fields that are there but
    malformed: reported, and not missing.
    """

    kind: Name
    name: Name
    fields: tuple[Field, ...]
    parameters: tuple[Parameter, ...] | None = None
    unread: frozenset[str] = frozenset()


@frozen(eq=False, repr=False, slots=False)
class ValueDecl(Node):
    """``kind name: type = value``: param, env, advantage. ``type`` only where written;
    ``parameters`` is None without parentheses."""

    kind: Name
    name: Name
    type: Expr | None
    value: Expr
    parameters: tuple[Parameter, ...] | None = None


@frozen(eq=False, repr=False, slots=False)
class Expectation(Node):
    """``expect path < value``: the left side of ``comparison`` is a path."""

    kind: Name
    comparison: Binary


@frozen(eq=False, repr=False, slots=False)
class ImportDecl(Node):
    """``import "path"``."""

    kind: Name
    path: String


Decl: TypeAlias = BlockDecl | ValueDecl | Expectation | ImportDecl


@frozen(eq=False, repr=False, slots=False)
class Recipe(Node):
    """``unread`` names declarations that are there but malformed: reported, and not unknown."""

    decls: tuple[Decl, ...]
    unread: frozenset[str] = frozenset()
