"""From values to plan records: every leaf becomes plain, and its origin is written down."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlc.check.values import Value, unwrap
from rlc.lang.source import Span
from rlc.record import define, field, field_names


@define
class Origins:
    """Where each leaf of a stage came from, and where each part stands, by dotted path.

    ``span`` is the place of the stage itself.
    """

    span: Span
    provenance: dict[str, str] = field(factory=dict)
    places: dict[str, Span] = field(factory=dict)

    def at(self, path: str) -> Span:
        """The place of ``batch.size`` and the like, or of the nearest part around it."""
        while path and path not in self.places:
            path = path.rpartition(".")[0]
        return self.places[path] if path else self.span


def settle(value: Value, path: str, origins: Origins) -> Any:
    """The plain record or value; ``origins`` learns where its leaves came from."""
    return _settle(value, path, value, origins)


def _settle(node: Any, path: str, here: Value, origins: Origins) -> Any:
    """``here`` is the innermost value around ``node``: what has no origin of its own has its."""
    if isinstance(node, Value):
        origins.places[path] = node.span
        return _settle(node.data, path, node, origins)
    if (names := field_names(node)) is not None:
        parts = {n: _settle(getattr(node, n), f"{path}.{n}", here, origins) for n in names}
        return type(node)(**parts)
    if isinstance(node, dict):
        return {key: _settle(item, f"{path}.{key}", here, origins) for key, item in node.items()}
    if isinstance(node, tuple):
        keys = keys_of(node)
        return tuple(
            _settle(item, f"{path}.{key}", here, origins)
            for key, item in zip(keys, node, strict=True)
        )
    origins.provenance[path] = here.origin
    return node


def keys_of(items: tuple[Any, ...]) -> list[str]:
    """What the items of a tuple are called in a path: their names, else their numbers."""
    names = [unwrap(getattr(unwrap(item), "name", None)) for item in items]
    named = all(isinstance(name, str) for name in names) and len(set(names)) == len(names)
    return names if named else [str(index) for index in range(len(items))]


def leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every leaf of a settled record with its dotted path, in order."""
    if (fields := field_names(node)) is not None:
        children = {name: getattr(node, name) for name in fields}
    elif isinstance(node, Mapping):
        children = dict(node)
    elif isinstance(node, tuple):
        children = dict(zip(keys_of(node), node, strict=True))
    else:
        yield path, node
        return
    for name, child in children.items():
        yield from leaves(child, f"{path}.{name}")
