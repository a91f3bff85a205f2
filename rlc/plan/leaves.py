"""The parts of a plan's records by dotted path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

from rlc.records import Record, evolve, fields, has

R = TypeVar("R", bound=Record)
PLAIN = {str, int, float, bool, type(None)}
INLINE = "inline"  # in the metadata of a field: its parts are called as those of the record are


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a record with its dotted path, in order."""
    children = children_of(node)
    if children is None:
        yield path, node
        return
    for name, child in children.items():
        if type(child) in PLAIN:
            yield f"{path}.{name}", child
        else:
            yield from leaves(child, f"{path}.{name}")


def evolved(node: R, parts: Mapping[str, Any]) -> R:
    """Return a record with some of its parts changed, which are called as :func:`children_of` calls
    them."""
    own = {field.name for field in fields(type(node))}
    new = {name: part for name, part in parts.items() if name in own}
    for field in fields(type(node)):
        if field.metadata.get(INLINE):
            inside = getattr(node, field.name)
            names = children_of(inside) or {}
            new[field.name] = evolved(inside, {n: p for n, p in parts.items() if n in names})
    return evolve(node, **new)


def children_of(
    node: Any, plain: Callable[[Any], Any] = lambda value: value
) -> Mapping[str, Any] | None:
    """The parts of a record, dict or tuple by what they are called in a path; None for a leaf,
    such as an expression.

    The items of a tuple are called by their names if they have different ones, else by their
    numbers. ``plain`` takes the origin off a value where values still have one.
    """
    kind: Any = type(node)
    if kind in PLAIN or (isinstance(node, Record) and node.is_whole):
        return None
    if has(kind):
        found: dict[str, Any] = {}
        for name, is_inline in _names(kind):
            if is_inline:  # its parts are called as if they were this record's
                found |= children_of(getattr(node, name), plain) or {}
            else:
                found[name] = getattr(node, name)
        return found
    if isinstance(node, tuple):
        keys = [plain(getattr(plain(item), "name", None)) for item in node]
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            keys = [str(index) for index in range(len(node))]
        return dict(zip(keys, node, strict=True))
    return node if isinstance(node, dict) else None


@cache
def _names(kind: Any) -> tuple[tuple[str, bool], ...]:
    """The names of a record's fields, and whether each is inline."""
    return tuple((field.name, bool(field.metadata.get(INLINE))) for field in fields(kind))
