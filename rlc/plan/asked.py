"""The models that a stage asks and does not train, wherever in its records they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

from attrs import evolve, fields, has

from rlc.plan.leaves import INLINE
from rlc.plan.models import ModelState
from rlc.records import Record

_PLAIN = {str, int, float, bool, type(None)}


def asked_models(node: Any, path: str = "") -> Iterator[tuple[str, ModelState]]:
    """Every model that a stage's plan, or a part of one, asks, with its path there."""
    kind = type(node)
    parts: Iterable[tuple[int | str, Any]] = ()
    if kind is ModelState:
        yield path, node
    elif kind is tuple:
        parts = enumerate(node)
    elif kind is dict:
        parts = node.items()
    elif has(kind) and not (isinstance(node, Record) and node.is_whole):
        parts = ((path, getattr(node, name)) for name, path in _names(kind))
    for name, part in parts:
        if type(part) not in _PLAIN:  # most are
            inside = str(name) if not path else path if name == "" else f"{path}.{name}"
            yield from asked_models(part, inside)


@cache
def _names(kind: type[Any]) -> tuple[tuple[str, str], ...]:
    """The fields of a record, and what they are called in a path."""
    return tuple(
        (part.name, "" if part.metadata.get(INLINE) else part.name) for part in fields(kind)
    )


def with_asked_models(node: Any, change: Callable[[ModelState], ModelState]) -> Any:
    """The same plan of a stage, or part of one, with each model that it asks changed."""
    kind = type(node)
    if kind is ModelState:
        return change(node)
    if kind is tuple:
        return tuple(with_asked_models(item, change) for item in node)
    if kind is dict:
        return {key: with_asked_models(item, change) for key, item in node.items()}
    if kind in _PLAIN or not has(kind) or (isinstance(node, Record) and node.is_whole):
        return node
    names = (part.name for part in fields(kind))
    return evolve(node, **{n: with_asked_models(getattr(node, n), change) for n in names})


def needed_stages(node: Any) -> tuple[str, ...]:
    """The stages whose weights are asked."""
    found = (state.after for _, state in asked_models(node))
    return tuple(dict.fromkeys(name for name in found if name is not None))
