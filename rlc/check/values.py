"""Values of a recipe: what they are, their places and their origins."""

from __future__ import annotations

from typing import Any

from attrs import frozen

from rlc.lang.source import Span


@frozen(eq=False, repr=False)
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
