"""Values of a recipe: what they are, their places and their origins; and what is not known."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rlc.catalog.index import KINDS
from rlc.catalog.records import SCALARS, Param
from rlc.lang.ast import Expr
from rlc.lang.diagnostics import Diagnostics
from rlc.lang.source import Span

_ALIKE = ({"int", "float"}, {"string", "word", "path"})


@frozen(eq=False, repr=False, slots=False)
class Value:
    """A value with its type, place and origin.

    ``type`` is one of :data:`rlc.catalog.records.SCALARS` or a kind of the catalogue; ``data`` is
    the plain value, or a plan record whose leaves may again be values. ``origin`` is a place, or
    what provenance says: ``--set main.steps``, ``default of adam``.
    """

    type: str
    data: Any
    span: Span
    origin: str | Span


def said(origin: str | Span) -> str:
    """An origin as provenance says it: a place is ``recipes/x.rl:12``; the command line has no
    lines."""
    if isinstance(origin, str):
        return origin
    return origin.source.name if is_command_line(origin) else origin.place()


def is_command_line(origin: str | Span) -> bool:
    text = origin if isinstance(origin, str) else origin.source.name
    return text.startswith("--")


def unwrap(node: Any) -> Any:
    """The plain value of a leaf."""
    return unwrap(node.data) if isinstance(node, Value) else node


@frozen(eq=False, repr=False, slots=False)
class Unknown(Expr):
    """A parameter that has no value, while its declaration is checked alone. It may be any value
    that fits ``want``; what depends on it is not known either."""

    want: Param


def report_unfit(unknown: Unknown, want: Param, found: Diagnostics) -> None:
    """Report a parameter whose type never fits where it stands. Its value is None: not known."""
    found.note("hole", unknown.span, want=want)
    have, need = unknown.want.type, want.type
    kind = KINDS.get(need)
    fits = (
        have == need
        or any({have, need} <= types for types in _ALIKE)
        or (need == "any" and have in SCALARS)
        or (kind is not None and (have in kind.plain or have == kind.as_is))
        or (have == "any" and (kind is None or bool(kind.plain) or kind.as_is is not None))
    )
    if not fits:
        takes = KINDS[need].noun if need in KINDS else SCALARS[need]
        is_a = KINDS[have].noun if have in KINDS else SCALARS[have]
        message = f"`{want.name}` takes {takes}, and the parameter `{unknown.want.name}` is {is_a}"
        advice = "change its type, or use another"
        if have == "any":  # it was given no type
            advice = f"say what it is: `{unknown.want.name}: {need}`"
        found.error("RL0201", unknown.span, message, advice)
