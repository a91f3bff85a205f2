"""Declarations with parameters, before they are used: their parameters, and who uses whom."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Literal

from rlc.catalog import DECLARATIONS, WORDS, Param, find_anywhere
from rlc.check.reuse.copies import names_in, nodes_in
from rlc.check.scope import NamedDecl, Scope
from rlc.lang import BlockDecl, Call, Diagnostics, Expr, Label, Name, Node


def check_templates(scope: Scope, found: Diagnostics) -> None:
    """Report declarations whose parameters have names that mean something else already, and those
    that use themselves. Both are dropped."""
    wrong = [decl for decl in scope.templates.values() if not _check_parameters(decl, scope, found)]
    for decl in {id(decl): decl for decl in [*wrong, *_circular(scope, found)]}.values():
        del scope.templates[decl.name.id]
        scope.unread |= {decl.name.id}


def report_unused_parameters(scope: Scope, found: Diagnostics) -> None:
    """Warn of parameters that nothing uses."""
    for decl in scope.templates.values():
        defaults = [each.default for each in decl.parameters or () if each.default is not None]
        used = {name.id for part in (decl, *defaults) for name in names_in(part)}
        for parameter in decl.parameters or ():
            name = parameter.name
            if name.id not in used:
                message = f"nothing in `{decl.name.id}` uses the parameter `{name.id}`"
                found.warning("RL0626", name.span, message, "use it, or take it out")


def _check_parameters(decl: NamedDecl, scope: Scope, found: Diagnostics) -> bool:
    """Whether the name of each parameter means one thing."""
    before = len(found)
    as_words = {name.id: name for name in _read_as_words(decl)}
    seen: dict[str, Name] = {}
    parts: dict[str, Name] = {}
    if isinstance(decl, BlockDecl) and _has_parts(decl.kind.id):
        parts = {field.name.id: field.name for field in decl.fields}
    for parameter in decl.parameters or ():
        name = parameter.name
        other = scope.declaration(name.id)
        # Whoever imports a file may use the names of its parameters.
        is_here = other is not None and other.span.source is decl.span.source
        if name.id in seen:
            label = Label(seen[name.id].span, "first given here")
            message = f"`{decl.name.id}` has two parameters `{name.id}`"
            found.error("RL0625", name.span, message, "give one another name", label)
        elif other is not None and is_here:
            label = Label(other.name.span, "declared here")
            message = f"the parameter `{name.id}` has the name of a declaration"
            found.error("RL0625", name.span, message, "give it another name", label)
        elif name.id in ("none", *WORDS) or getattr(find_anywhere(name.id), "word", False):
            message = f"the parameter `{name.id}` has the name of one of the language's words"
            found.error("RL0625", name.span, message, "give it another name")
        elif (word := as_words.get(name.id)) is not None:
            label = Label(word.span, f"the word `{name.id}`, or the parameter?")
            message = f"the parameter `{name.id}` has the name of a word that can stand here"
            found.error("RL0625", name.span, message, "give it another name", label)
        elif (part := parts.get(name.id)) is not None:
            label = Label(part.span, "the part")
            message = f"the parameter `{name.id}` has the name of a part of `{decl.name.id}`"
            found.error("RL0625", name.span, message, "give it another name", label)
        seen.setdefault(name.id, name)
    return len(found) == before


def _has_parts(kind: str) -> bool:
    """Whether the fields of a block are expressions, which may name each other."""
    return any(field.type == "expression" for field in DECLARATIONS[kind].fields)


def _read_as_words(decl: NamedDecl) -> Iterator[Name]:
    """The names in a declaration that stand where a word of that name may stand."""
    for node in nodes_in(decl):
        pairs: Iterable[tuple[Param, Expr]] = ()
        if isinstance(node, BlockDecl):
            fields = {param.name: param for param in DECLARATIONS[decl.kind.id].fields}
            pairs = [(fields[f.name.id], f.value) for f in node.fields if f.name.id in fields]
        elif isinstance(node, Call) and isinstance(node.func, Name):
            params = getattr(find_anywhere(node.func.id), "params", ())
            named = {param.name: param for param in params}
            given = [
                (named.get(arg.name.id) if arg.name else param, arg.value)
                for arg, param in zip_longest(node.args, params)
                if arg is not None
            ]
            pairs = [(param, value) for param, value in given if param is not None]
            if any(param.type == "expression" for param in params):
                yield from _inputs(node, "reward")
        if isinstance(node, BlockDecl) and _has_parts(decl.kind.id):
            yield from _inputs(node, "loss")
        for param, value in pairs:
            if isinstance(value, Name) and value.id in param.all_choices():
                yield value


def _inputs(node: Node, of: Literal["loss", "reward"]) -> Iterator[Name]:
    """The names in expressions that have a meaning of their own there."""
    from rlc.algo import INPUTS

    return (name for name in names_in(node) if name.id in INPUTS[of])


def _circular(scope: Scope, found: Diagnostics) -> list[NamedDecl]:
    """The declarations that use themselves, after a report of each circle."""
    circular, done = list[NamedDecl](), set[str]()

    def visit(name: str, way: tuple[str, ...]) -> None:
        decl = scope.templates[name]
        calls = (node.func for node in nodes_in(decl) if isinstance(node, Call))
        for call in (func for func in calls if isinstance(func, Name)):
            if call.id in way or call.id == name:
                circle = (*way, name)[(*way, name).index(call.id) :]
                shown = " → ".join([*circle, call.id])
                message = f"`{call.id}` uses itself, without end"
                label = Label(scope.templates[call.id].name.span, "declared here")
                found.error("RL0624", call.span, message, f"break the circle: {shown}", label)
                circular.extend(scope.templates[each] for each in circle)
            elif call.id in scope.templates and call.id not in done:
                visit(call.id, (*way, name))
        done.add(name)

    for name in scope.templates:
        if name not in done:
            visit(name, ())
    return [decl for decl in scope.templates.values() if any(decl is each for each in circular)]
