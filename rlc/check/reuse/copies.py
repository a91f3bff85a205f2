"""Copies of syntax trees: with holes filled, and with marks of how something came there."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Any, TypeVar

from rlc.check.values import is_command_line
from rlc.lang import Call, Expr, Name, Node, Span
from rlc.records import evolve, fields, frozen

AnyNode = TypeVar("AnyNode", bound=Node)

# What names a part or says what it is: no expression, so no hole.
_LABELS = ("name", "attr", "func", "kind", "type", "parameters")


@frozen(eq=False)
class ReuseSpan(Span):
    """The span of what is put in somewhere else; ``how`` says how it came there, before its place:
    ``argument of digits, recipes/x.rl:12``. Equal to the plain span of the same characters."""

    how: str

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Span):
            return NotImplemented
        mine, others = (self.source, self.start, self.end), (other.source, other.start, other.end)
        return mine == others

    def __hash__(self) -> int:
        return hash(Span(self.source, self.start, self.end))

    def place(self) -> str:
        return f"{self.how}{super().place()}"


def filled(node: AnyNode, holes: Mapping[str, Expr]) -> AnyNode:
    """The tree with each name of ``holes`` replaced. Parts without one are those of ``node``."""
    return _changed(node, lambda name: holes.get(name.id, name))


def nodes_in(node: Node) -> Iterator[Node]:
    """A node and all that stands for a value in it."""
    yield node
    for part in _parts(node):
        value = getattr(node, part)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Node):
                yield from nodes_in(item)


def names_in(node: Node) -> Iterator[Name]:
    """The names that stand for values in a tree."""
    return (part for part in nodes_in(node) if isinstance(part, Name))


def _changed(node: AnyNode, change: Callable[[Name], Expr]) -> AnyNode:
    if isinstance(node, Name):
        return change(node)  # type: ignore[return-value]  # an expression for an expression
    changes = {}
    for part in _parts(node):
        before = getattr(node, part)
        after = before
        if isinstance(before, Node):
            after = _changed(before, change)
        elif isinstance(before, tuple):
            after = tuple(_changed(item, change) for item in before)
            if all(new is old for new, old in zip(after, before, strict=True)):
                continue
        if after is not before:
            changes[part] = after
    return evolve(node, **changes) if changes else node


def _parts(node: Node) -> list[str]:
    return [field.name for field in fields(type(node)) if field.name not in _LABELS]


def marked(node: AnyNode, how: str, templates: Container[str]) -> AnyNode:
    """The tree with marks of how it came where it is put. What has one, and what is from the
    command line, keeps its own; arguments of ``templates`` get theirs when these are used."""
    changes: dict[str, Any] = {}
    span = node.span
    if not isinstance(span, ReuseSpan) and not is_command_line(span):
        changes["span"] = ReuseSpan(span.source, span.start, span.end, how)
    is_use = isinstance(node, Call) and isinstance(node.func, Name) and node.func.id in templates
    for field in () if is_use else fields(type(node)):
        part = getattr(node, field.name)
        if isinstance(part, Node):
            changes[field.name] = marked(part, how, templates)
        elif isinstance(part, tuple):
            changes[field.name] = tuple(marked(item, how, templates) for item in part)
    return evolve(node, **changes)
