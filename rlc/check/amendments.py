"""Syntax trees changed: a value put where a dotted path leads, holes filled, marks of how something
came there. Overrides, amendments and uses of declarations do it."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from rlc.catalog import find_anywhere
from rlc.check.values import is_command_line
from rlc.lang import (
    Argument,
    Binary,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Field,
    Name,
    Node,
    RecordExpr,
    Span,
    ValueDecl,
)
from rlc.records import evolve, fields, frozen


@frozen(eq=False)
class Amendment:
    """A value, and the names that lead to its place, those of ``decls`` first.

    ``stands_for`` gives the expression of a name, if a part of that may change. Where there is
    nothing to change, ``code`` is reported with the advice of ``whole`` or, for a part that is
    declared apart, of ``declared``."""

    path: Sequence[Name]
    value: Expr
    decls: Mapping[str, BlockDecl | ValueDecl]
    found: Diagnostics
    code: str
    whole: Callable[[str], str]
    declared: Callable[[str], str]
    stands_for: Callable[[Name], Expr | None] = lambda _: None

    def in_fields(self, fields: Sequence[Field], depth: int) -> tuple[Field, ...]:
        """Return the fields with the one replaced or added that the path names from ``depth`` on. A
        field may have a dotted name itself."""
        rest = self.path[depth:]
        changed = list(fields)
        for length in range(len(rest), 0, -1):
            name = _joined(rest[:length])
            for index, field in enumerate(fields):
                if field.name.id == name.id:
                    inner = self.in_expr(field.value, depth + length)
                    whole = length == len(rest)
                    changed[index] = evolve(field, name=name if whole else field.name, value=inner)
                    return tuple(changed)
        if len(rest) == 1:
            return *changed, self.field(depth)
        self._report(depth, self.whole(self._text(depth + 1)))
        return tuple(changed)

    def field(self, depth: int) -> Field:
        """Return a field for what the path names from ``depth`` on."""
        name = _joined(self.path[depth:])
        return Field(name.span.to(self.value.span), name, self.value)

    def in_expr(self, expr: Expr, depth: int) -> Expr:
        """Return ``expr`` with the part replaced that the path names from ``depth`` on."""
        rest = self.path[depth:]
        if not rest:
            return self.value
        match expr:
            case Binary(op="|>"):  # the call that it starts with
                return evolve(expr, left=self.in_expr(expr.left, depth))
            case Call():
                return self.in_call(expr, depth)
            case RecordExpr():
                return evolve(expr, fields=self.in_fields(expr.fields, depth))
            case Name():
                if (meant := self.stands_for(expr)) is not None:
                    return self.in_expr(meant, depth)
                if expr.id in self.decls:
                    inside = ".".join([expr.id, *(name.id for name in rest)])
                    self._report(depth, self.declared(inside))
                    return expr
        self._report(depth, self.whole(self._text(depth)))
        return expr

    def in_call(self, call: Call, depth: int) -> Call:
        """Return the call with one argument replaced or added; the checker knows the names."""
        rest = self.path[depth:]
        name = rest[0]
        template = self.decls.get(call.func.id) if isinstance(call.func, Name) else None
        builtin = find_anywhere(call.func.id) if isinstance(call.func, Name) else None
        names, now = list[str](), dict[str, str]()
        if template is not None:
            names = [parameter.name.id for parameter in template.parameters or ()]
        elif builtin is not None:
            names = [param.name for param in builtin.params]
            now = {old: param.name for param in builtin.params for old in param.formerly}
        args = list(call.args)
        for index, old in enumerate(args):
            own = old.name.id if old.name else names[index] if index < len(names) else None
            if now.get(own or "", own) == now.get(name.id, name.id):
                argument = Argument(old.span, old.name, self.in_expr(old.value, depth + 1))
                if len(rest) == 1:
                    span, named = name.span.to(self.value.span), name if old.name else None
                    argument = Argument(span, named, argument.value)
                args[index] = argument
                return evolve(call, args=tuple(args))
        if len(rest) > 1:
            self._report(depth, self.whole(self._text(depth + (name.id in names))))
            return call
        return evolve(call, args=(*args, Argument(name.span.to(self.value.span), name, self.value)))

    def _text(self, depth: int | None = None) -> str:
        return ".".join(name.id for name in self.path[:depth])

    def _report(self, depth: int, advice: str) -> None:
        message = f"there is nothing to set at `{self._text()}`"
        self.found.error(self.code, self.path[depth].span, message, advice)


def names_of(dotted: Name) -> Iterator[Name]:
    """Yield the names of a dotted one, each with its place."""
    source, start = dotted.span.source, dotted.span.start
    for part in re.finditer(r"(?:#[^\n]*\n|[\s.])*(\w+)", dotted.span.text):
        yield Name(Span(source, start + part.start(1), start + part.end(1)), part[1])


def _joined(names: Sequence[Name]) -> Name:
    if len(names) == 1:
        return names[0]
    return Name(names[0].span.to(names[-1].span), ".".join(name.id for name in names))


AnyNode = TypeVar("AnyNode", bound=Node)

# What names a part or says what it is: no expression, so no hole.
_LABELS = ("name", "attr", "func", "kind", "type", "parameters")


@frozen(eq=False)
class ReuseSpan(Span):
    """The span of what is put in elsewhere, equal to the plain span of the same characters; ``how``
    stands before its place: ``argument of digits, recipes/x.rl:12``."""

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
    """Return the tree with each name of ``holes`` replaced."""
    return _changed(node, lambda name: holes.get(name.id, name))


def nodes_in(node: Node) -> Iterator[Node]:
    """Yield a node and all that stands for a value in it."""
    yield node
    for part in _parts(node):
        value = getattr(node, part)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, Node):
                yield from nodes_in(item)


def names_in(node: Node) -> Iterator[Name]:
    """Yield the names that stand for values in a tree."""
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
    """Return the tree with marks of how it came where it is put. Existing marks and those of the
    command line stay; arguments of ``templates`` are marked by their use."""
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
