"""A value put where a dotted path leads: what ``--set`` and an amendment both do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from rlc.catalog import find_anywhere
from rlc.lang import (
    Argument,
    Binary,
    BlockDecl,
    Call,
    Diagnostics,
    Expr,
    Field,
    Name,
    RecordExpr,
    Span,
    ValueDecl,
)
from rlc.records import evolve, frozen


@frozen(eq=False)
class Amendment:
    """A value, and the names that lead to where it belongs, those of ``decls`` first.

    ``stands_for`` gives the expression that a name stands for, if a part of that may change.
    Where there is nothing to change, ``code`` is reported: ``whole`` says how the part is set that
    is there, ``declared`` what to do about one that is declared apart.
    """

    path: Sequence[Name]
    value: Expr
    decls: Mapping[str, BlockDecl | ValueDecl]
    found: Diagnostics
    code: str
    whole: Callable[[str], str]
    declared: Callable[[str], str]
    stands_for: Callable[[Name], Expr | None] = lambda _: None

    def in_fields(self, fields: Sequence[Field], depth: int) -> tuple[Field, ...]:
        """The fields with the one replaced or added that the path names from ``depth`` on. A field
        may have a name of several parts itself."""
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
        """A field of its own, for what the path names from ``depth`` on."""
        name = _joined(self.path[depth:])
        return Field(name.span.to(self.value.span), name, self.value)

    def in_expr(self, expr: Expr, depth: int) -> Expr:
        """``expr`` with the part replaced that the path names from ``depth`` on."""
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
        """The call with one argument replaced or added; unknown names are left to the checker."""
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
                    argument = evolve(argument, span=name.span.to(self.value.span))
                    argument = evolve(argument, name=name if old.name else None)
                args[index] = argument
                return evolve(call, args=tuple(args))
        if len(rest) > 1:
            self._report(depth, self.whole(self._text(depth + (name.id in names))))
            return call
        return evolve(call, args=(*args, Argument(name.span.to(self.value.span), name, self.value)))

    def _text(self, depth: int) -> str:
        return ".".join(name.id for name in self.path[:depth])

    def _report(self, depth: int, advice: str) -> None:
        message = f"there is nothing to set at `{self._text(len(self.path))}`"
        self.found.error(self.code, self.path[depth].span, message, advice)


def names_of(dotted: Name) -> Iterator[Name]:
    """The names of a dotted one, each with its place."""
    source, start = dotted.span.source, dotted.span.start
    for part in re.finditer(r"(?:#[^\n]*\n|[\s.])*(\w+)", dotted.span.text):
        yield Name(Span(source, start + part.start(1), start + part.end(1)), part[1])


def _joined(names: Sequence[Name]) -> Name:
    """Several names as a dotted one."""
    if len(names) == 1:
        return names[0]
    return Name(names[0].span.to(names[-1].span), ".".join(name.id for name in names))
