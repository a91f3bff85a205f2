"""Values of a recipe: what they are, their places and their origins; and what is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlc.catalog import KINDS, SCALARS, Param
from rlc.lang import Diagnostics, Expr, Span
from rlc.plan.leaves import children_of
from rlc.records import define, field, frozen, has

_ALIKE = ({"int", "float"}, {"string", "word", "path"})


@frozen(eq=False)
class Value:
    """A value with its type, place and origin.

    ``type`` is one of :data:`rlc.catalog.records.SCALARS` or a kind of the catalogue; ``data`` is
    the plain value, or a plan record whose leaves may again be values. ``origin`` is a place, or
    what provenance says: ``--set main.steps``, ``default of adam``. ``keys`` are the places of the
    names in a record that is written out.
    """

    type: str
    data: Any
    span: Span
    origin: str | Span
    keys: Mapping[str, Span] | None = None


def said(origin: str | Span) -> str:
    """Return an origin as provenance has it: ``recipes/x.rl:12``, or the option without a line."""
    if isinstance(origin, str):
        return origin
    return origin.source.name if is_command_line(origin) else origin.place()


def is_command_line(origin: str | Span) -> bool:
    return (origin if isinstance(origin, str) else origin.source.name).startswith("--")


def unwrap(node: Any) -> Any:
    """Return the plain value of a leaf."""
    return unwrap(node.data) if isinstance(node, Value) else node


@frozen(eq=False)
class UnknownValue(Expr):
    """A parameter without a value, while its declaration is checked alone: any value that fits
    ``want``."""

    want: Param


def report_unfit(unknown: UnknownValue, want: Param, found: Diagnostics) -> None:
    """Report a parameter whose type never fits where it stands. Its value is None: not known."""
    found.note("hole", unknown.span, want=want)
    have, need = unknown.want.type, want.type
    kind = KINDS.get(need)
    fits = (
        have == need
        or any({have, need} <= types for types in _ALIKE)
        or (need == "any" and have in SCALARS)
        or (kind is not None and (have in kind.plain or have == kind.as_is))
        or (have == "any" and (kind is None or bool(kind.plain) or kind.as_is is not None))
    )
    if not fits:
        takes, is_a = (KINDS[k].noun if k in KINDS else SCALARS[k] for k in (need, have))
        message = f"`{want.name}` takes {takes}, and the parameter `{unknown.want.name}` is {is_a}"
        advice = "change its type, or use another"
        if have == "any":  # it was given no type
            advice = f"say what it is: `{unknown.want.name}: {need}`"
        found.error("RL0201", unknown.span, message, advice)


_MISSING = object()
_PLAIN = {str, int, float, bool, type(None)}


@define(eq=False)
class Origins:
    """The origins of the leaves of a stage, and the places of its parts, by dotted path. ``span``
    is the place of the stage; ``values`` are its parts as they were evaluated. Those of a plan have
    no places, and its ``recorded`` origins."""

    span: Span
    values: dict[str, Value] = field(factory=dict)
    recorded: Mapping[str, str] = field(factory=dict)

    def at(self, path: str) -> Span:
        """Return the place of ``batch.size`` and the like, or of the nearest part around it."""
        node: Any = self.values
        place = self.span
        keys: Mapping[str, Span] = {}
        for key in path.split("."):
            node = (children_of(node, unwrap) or {}).get(key, _MISSING)
            if node is _MISSING:
                break
            place, keys = keys.get(key, place), {}
            while isinstance(node, Value):
                place, keys, node = node.span, node.keys or keys, node.data
        return place

    def provenance(self) -> dict[str, str]:
        """Return the origin of every leaf by its path, in order."""
        found = dict(self.recorded)
        for name, value in self.values.items():
            _trace(value, name, value, found)
        return found


def settle(node: Any) -> Any:
    """Return the plain record or value."""
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
    """Note the origins of leaves, by default that of ``here``, the innermost value around them."""
    if isinstance(node, Value):
        _trace(node.data, path, node, found)
    elif (children := children_of(node, unwrap)) is not None:
        for key, child in children.items():
            _trace(child, f"{path}.{key}", here, found)
    else:
        found[path] = said(here.origin)
