"""Values of a recipe: what they are, where they stand, and where they came from."""

from __future__ import annotations

from typing import Any

from rlc.lang.source import Span
from rlc.record import frozen


@frozen
class Value:
    """A value with its type, place and origin.

    ``type`` is one of :data:`rlc.catalog.records.SCALARS` or a kind of the catalogue; ``data`` is
    the plain value, or a plan record whose leaves may again be values. ``origin`` is what
    provenance says: ``recipes/x.rl:12``, ``--set main.steps``, ``default of adam``.
    """

    type: str
    data: Any
    span: Span
    origin: str


def place(span: Span) -> str:
    """Where a span is, as provenance says it; the command line has no lines."""
    name = span.source.name
    return name if is_command_line(name) else span.place()


def is_command_line(origin: str) -> bool:
    return origin.startswith("--")


def unwrap(node: Any) -> Any:
    """The plain value of a leaf."""
    return unwrap(node.data) if isinstance(node, Value) else node
