"""The parts of a plan's records by dotted path, and the models that a stage asks among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import is_
from typing import Any, TypeVar

from rlc.plan.parts import ModelPlan, ModelState
from rlc.records import IF_ANY, Record, evolve, fields, has

P = TypeVar("P")
R = TypeVar("R", bound=Record)
PLAIN = {str, int, float, bool, type(None)}
INLINE = "inline"  # in the metadata of a field: its parts are called as those of the record are


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield every leaf of a record with its dotted path, in order."""
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
    """Return a record with some of its parts changed, named as in :func:`children_of`."""
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
    """Return the parts of a record, dict or tuple by their names in a path; None for a leaf, such
    as an expression. The items of a tuple have their own names if these differ, else their numbers.
    ``plain`` takes the origin off a value where values still have one."""
    kind: Any = type(node)
    if kind in PLAIN or (isinstance(node, Record) and node.is_whole):
        return None
    if has(kind):
        found: dict[str, Any] = {}
        for name, called, if_any in _names(kind):
            if called:
                part = getattr(node, name)
                if not if_any or plain(part) is not None:
                    found[name] = part
            else:  # its parts are called as if they were this record's
                found |= children_of(getattr(node, name), plain) or {}
        return found
    if isinstance(node, tuple):
        keys = [plain(getattr(plain(item), "name", None)) for item in node]
        if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
            keys = [str(index) for index in range(len(node))]
        return dict(zip(keys, node, strict=True))
    return node if isinstance(node, dict) else None


@cache
def _names(kind: Any) -> tuple[tuple[str, str, bool], ...]:
    """Return the fields of a record, none if it is one value; their names in a path; and whether
    they are parts only if they are not None."""
    if not has(kind) or (issubclass(kind, Record) and kind.is_whole):
        return ()
    return tuple(
        (one.name, "" if one.metadata.get(INLINE) else one.name, bool(one.metadata.get(IF_ANY)))
        for one in fields(kind)
    )


def asked_models(node: Any, path: str = "") -> list[tuple[str, ModelState]]:
    """Return every model that a stage's plan, or a part of one, asks, with its path there."""
    found: list[tuple[str, ModelState]] = []
    _collect(node, path, found)
    return found


def _collect(node: Any, path: str, found: list[tuple[str, ModelState]]) -> None:
    if type(node) is ModelState:
        found.append((path, node))
        return
    for name, part in (children_of(node) or {}).items():
        if type(part) not in PLAIN:  # most are
            _collect(part, f"{path}.{name}" if path else name, found)


def models_of(stage: Any) -> list[tuple[str, ModelPlan]]:
    """Return the model of a stage, as far as its parts are known, and those that it asks, each with
    its path there."""
    own = (children_of(stage) or {}).get("model")
    asked = [(f"{path}.model", state.model) for path, state in asked_models(stage)]
    return asked if own is None else [("model", own), *asked]


def with_each(of: type[P], node: Any, change: Callable[[P], P]) -> Any:
    """Return a plan, or a part of one, with each part of a type changed."""
    kind: Any = type(node)
    if kind is of:
        return change(node)
    if kind in PLAIN:
        return node
    if kind is tuple:
        items = [with_each(of, item, change) for item in node]
        return node if all(map(is_, items, node)) else tuple(items)
    parts = node if kind is dict else {name: getattr(node, name) for name, *_ in _names(kind)}
    new = {}
    for name, part in parts.items():
        if type(part) not in PLAIN and (other := with_each(of, part, change)) is not part:
            new[name] = other
    if not new:
        return node
    return {**node, **new} if kind is dict else evolve(node, **new)


def needed_stages(node: Any) -> tuple[str, ...]:
    """Return the stages whose weights are asked."""
    found = (state.after for _, state in asked_models(node))
    return tuple(dict.fromkeys(name for name in found if name is not None))
