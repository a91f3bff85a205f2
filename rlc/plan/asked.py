"""The models that a stage asks and does not train, wherever in its records they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from attrs import evolve, fields, has

from rlc.plan.models import ModelState
from rlc.records import Record

_PLAIN = {str, int, float, bool, type(None)}


def asked_models(node: Any, path: str = "") -> Iterator[tuple[str, ModelState]]:
    """Every model that a stage's plan, or a part of one, asks, with its path there."""
    kind = type(node)
    if kind in _PLAIN:
        return
    if kind is ModelState:
        yield path, node
        return
    dot = path and f"{path}."
    if kind is tuple:
        for index, item in enumerate(node):
            yield from asked_models(item, f"{dot}{index}")
    elif kind is dict:
        for key, item in node.items():
            yield from asked_models(item, f"{dot}{key}")
    elif has(kind) and not (isinstance(node, Record) and node.is_whole):
        for part in fields(kind):
            yield from asked_models(getattr(node, part.name), f"{dot}{part.name}")


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
