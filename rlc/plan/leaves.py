"""The parts of a plan's records by dotted path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from attrs import fields, has

from rlc.records import Record


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a record with its dotted path, in order."""
    children = children_of(node)
    if children is None:
        yield path, node
        return
    for name, child in children.items():
        yield from leaves(child, f"{path}.{name}")


def children_of(
    node: Any, plain: Callable[[Any], Any] = lambda value: value
) -> Mapping[str, Any] | None:
    """The parts of a record, dict or tuple by what they are called in a path; None for a leaf,
    such as an expression.

    The items of a tuple are called by their names if they have different ones, else by their
    numbers. ``plain`` takes the origin off a value where values still have one.
    """
    if isinstance(node, Record) and node.is_whole:
        return None
    if has(type(node)):
        return {field.name: getattr(node, field.name) for field in fields(type(node))}
    if isinstance(node, tuple):
        keys = [plain(getattr(plain(item), "name", None)) for item in node]
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            keys = [str(index) for index in range(len(node))]
        return dict(zip(keys, node, strict=True))
    return node if isinstance(node, dict) else None
