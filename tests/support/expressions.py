"""Programs from text, for tests: Python's own syntax is near enough to that of recipes."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from rlc.algo import Kind, Program
from rlc.algo.expressions.build import Builder

_OPERATORS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.USub: "neg",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}


def program(
    text: str,
    params: Mapping[str, float] | None = None,
    kind: Kind = "loss",
    components: tuple[str, ...] = (),
) -> Program:
    """Return the program of one assignment a line; the last line is the result."""
    builder = Builder(kind, components)
    known = {name: builder.number(value) for name, value in (params or {}).items()}

    def node(tree: ast.expr) -> int:
        match tree:
            case ast.Constant(value=value):
                return builder.number(float(str(value)))
            case ast.Name(id=name):
                return known[name] if name in known else builder.input(name)
            case ast.Call(func=ast.Name(id=name), args=args):
                return builder.apply(name, *map(node, args))
            case ast.UnaryOp(op=op, operand=operand):
                return builder.apply(_OPERATORS[type(op)], node(operand))
            case ast.BinOp(left=left, op=op, right=right):
                return builder.apply(_OPERATORS[type(op)], node(left), node(right))
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return builder.apply(_OPERATORS[type(op)], node(left), node(right))
        raise AssertionError(ast.dump(tree))

    output = -1
    for line in filter(None, map(str.strip, text.splitlines())):
        match ast.parse(line).body:
            case [ast.Assign(targets=[ast.Name(id=name)], value=value)]:
                known[name] = output = node(value)
                builder.name(output, name)
            case [ast.Expr(value=value)]:
                output = node(value)
            case other:
                raise AssertionError(other)
    return builder.program(output)
