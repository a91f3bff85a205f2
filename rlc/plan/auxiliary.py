"""The models that a stage asks and does not train, wherever in its records they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from operator import is_
from typing import Any

from rlc.plan.leaves import INLINE, PLAIN
from rlc.plan.models import ModelState
from rlc.records import Record, evolve, fields, has


def asked_models(node: Any, path: str = "") -> list[tuple[str, ModelState]]:
    """Every model that a stage's plan, or a part of one, asks, with its path there."""
    found: list[tuple[str, ModelState]] = []
    _collect(node, path, found)
    return found


def _collect(node: Any, path: str, found: list[tuple[str, ModelState]]) -> None:
    kind: Any = type(node)
    parts: Iterable[tuple[int | str, Any]]
    if kind is ModelState:
        found.append((path, node))
        return
    if kind is tuple:
        parts = enumerate(node)
    elif kind is dict:
        parts = node.items()
    else:
        parts = [(path, getattr(node, name)) for name, path in _names(kind)]
    for name, part in parts:
        if type(part) not in PLAIN:  # most are
            inside = str(name) if not path else path if name == "" else f"{path}.{name}"
            _collect(part, inside, found)


@cache
def _names(kind: Any) -> tuple[tuple[str, str], ...]:
    """The parts of a record that is no value of its own, and what they are called in a path."""
    if not has(kind) or (issubclass(kind, Record) and kind.is_whole):
        return ()
    return tuple(
        (part.name, "" if part.metadata.get(INLINE) else part.name) for part in fields(kind)
    )


def with_asked_models(node: Any, change: Callable[[ModelState], ModelState]) -> Any:
    """The same plan of a stage, or part of one, with each model that it asks changed."""
    kind: Any = type(node)
    if kind is ModelState:
        return change(node)
    if kind in PLAIN:
        return node
    if kind is tuple:
        items = [with_asked_models(item, change) for item in node]
        return node if all(map(is_, items, node)) else tuple(items)
    parts = node if kind is dict else {name: getattr(node, name) for name, _ in _names(kind)}
    new = {}
    for name, part in parts.items():
        if type(part) not in PLAIN and (other := with_asked_models(part, change)) is not part:
            new[name] = other
    if not new:
        return node
    return {**node, **new} if kind is dict else evolve(node, **new)


def needed_stages(node: Any) -> tuple[str, ...]:
    """The stages whose weights are asked."""
    found = (state.after for _, state in asked_models(node))
    return tuple(dict.fromkeys(name for name in found if name is not None))
