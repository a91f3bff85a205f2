"""The losses of recipes/lib/losses.rl, read for tests of their mathematics alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from paths import ROOT

from rlc.algo import Builder, Program
from rlc.lang import ast
from rlc.lang.source import Source
from rlc.lang.syntax import parse

PATH = ROOT / "recipes" / "lib" / "losses.rl"


@cache
def library() -> dict[str, ast.BlockDecl]:
    """The declarations of the file, by name."""
    recipe, diagnostics = parse(Source(str(PATH), PATH.read_text("utf-8")))
    assert not list(diagnostics)
    return {d.name.id: d for d in recipe.decls if isinstance(d, ast.BlockDecl)}


def library_loss(name: str, **more: float) -> Program:
    """Return one of them, with its defaults but for those that are given."""
    declared, builder = library()[name], Builder()
    known: dict[str, int] = {}
    for parameter in declared.parameters or ():
        own = parameter.name.id
        if own in more:
            known[own] = builder.number(more[own])
        elif parameter.default is not None:
            known[own] = _node(parameter.default, builder, known)
    for field in declared.fields:
        known[field.name.id] = _node(field.value, builder, known)
        builder.name(known[field.name.id], field.name.id)
    result = known["token" if "token" in known else "sequence"]
    assert builder.shape(result) == declared.fields[-1].name.id
    return builder.program(result)


def _node(expr: ast.Expr, builder: Builder, known: Mapping[str, int]) -> int:
    match expr:
        case ast.Number(value=value):
            return builder.number(value)
        case ast.Name(id=name):
            return known[name] if name in known else builder.input(name)
        case ast.Negative(operand=operand):
            return builder.apply("neg", _node(operand, builder, known))
        case ast.Binary(op=op, left=left, right=right):
            return builder.apply(op, *(_node(side, builder, known) for side in (left, right)))
        case ast.Call(func=ast.Name(id=name), args=args):
            return builder.apply(name, *(_node(arg.value, builder, known) for arg in args))
    raise AssertionError(expr)
