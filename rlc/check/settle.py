"""From values to plan records: every leaf becomes plain, and its origin is kept."""

from __future__ import annotations

from typing import Any

from attrs import define, field, has

from rlc.check.values import Value, said, unwrap
from rlc.lang.source import Span
from rlc.plan.leaves import children_of

_MISSING = object()
_PLAIN = {str, int, float, bool, type(None)}


@define(eq=False, repr=False)
class Origins:
    """The origin of each leaf of a stage, and the place of each part, by dotted path.

    ``span`` is the place of the stage itself; ``values`` are its parts as they were evaluated.
    """

    span: Span
    values: dict[str, Value] = field(factory=dict)

    def at(self, path: str) -> Span:
        """The place of ``batch.size`` and the like, or of the nearest part around it."""
        node: Any = self.values
        place = self.span
        for key in path.split("."):
            node = (children_of(node, unwrap) or {}).get(key, _MISSING)
            if node is _MISSING:
                break
            while isinstance(node, Value):
                place, node = node.span, node.data
        return place

    def is_default(self, path: str) -> bool:
        """Return whether a leaf has the default of its parameter."""
        return self.provenance()[path].startswith("default of ")

    def provenance(self) -> dict[str, str]:
        """What is said of every leaf's origin, in order."""
        found: dict[str, str] = {}
        for name, value in self.values.items():
            _trace(value, name, value, found)
        return found


def settle(node: Any) -> Any:
    """The plain record or value."""
    while (kind := type(node)) is Value:
        node = node.data
    if kind in _PLAIN:
        return node
    if kind is dict:
        return {key: settle(item) for key, item in node.items()}
    if kind is tuple:
        return tuple([settle(item) for item in node])
    if has(kind):
        return kind(*[settle(getattr(node, name)) for name in node.__match_args__])
    return node


def _trace(node: Any, path: str, here: Value, found: dict[str, str]) -> None:
    """``here`` is the innermost value around ``node``: what has no origin of its own has its."""
    if isinstance(node, Value):
        _trace(node.data, path, node, found)
    elif (children := children_of(node, unwrap)) is not None:
        for key, child in children.items():
            _trace(child, f"{path}.{key}", here, found)
    else:
        found[path] = said(here.origin)
