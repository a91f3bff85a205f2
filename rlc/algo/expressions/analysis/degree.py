"""How a loss scales with the advantages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rlc.algo.expressions.program import INPUT, NUMBER, Program
from rlc.algo.expressions.vocabulary import OPERATIONS
from rlc.records import Record, frozen

_Degree = float | Literal["any"] | None  # "any": 0 whatever the advantages are


@frozen
class Degree(Record):
    """``L(c A) = c^of L(A)`` for every c > 0, where ``A`` are the advantages of one sequence.

    ``of`` is None if no degree is known to hold. ``signed``: it holds for negative c too. With
    ``of == 1`` a weight on the loss of a sequence, and on its gradient, is the same as that weight
    on its advantages, as long as the weight is not negative (or ``signed``).
    """

    of: float | None
    signed: bool


def degree(program: Program, of: str = "adv") -> Degree:
    """Return the degree of a program in one of its inputs, from its operations.

    A degree that is returned holds exactly; a program may have one that is not found, such as
    ``log(exp(adv))``.
    """
    positive, any_sign = (_degrees(program, of, negative) for negative in (False, True))
    found = positive[program.output]
    found = 0.0 if found == "any" else found
    return Degree(found, found is not None and any_sign[program.output] is not None)


def _degrees(program: Program, of: str, negative: bool) -> list[_Degree]:
    """The degree of each node; with ``negative`` one that holds for negative factors as well."""
    found: list[_Degree] = []
    for node in program.nodes:
        if node.op == NUMBER:
            found.append(0.0 if node.value else "any")
        elif node.op == INPUT:
            found.append(1.0 if node.name == of else 0.0)
        else:
            found.append(_of_operation(node.op, [found[arg] for arg in node.args], negative))
    return found


def _of_operation(op: str, args: Sequence[_Degree], negative: bool) -> _Degree:
    if OPERATIONS[op].batch is not None:
        return 0.0  # a constant, whatever the gradient is taken of
    if None in args:
        return None
    shared = _shared(args)
    even = shared == "any" or (shared is not None and shared % 2 == 0)
    keeps_order = even or not negative
    match op, args:
        case "where", (_, a, b):
            return _shared((a, b))
        case "*", (a, b):
            return "any" if a == "any" or b == "any" else a + b  # type: ignore[operator]
        case "/", (a, b):
            if a == "any" or b == "any":
                return a if b != "any" else None
            return a - b  # type: ignore[operator]
        case "sqrt", (a,):
            if a == "any":
                return a
            half = a / 2  # type: ignore[operator]
            return half if not negative or half % 2 == 0 else None
        case "==" | "!=", _:
            return None if shared is None else 0.0
        case "+" | "-" | "neg" | "stop" | "mean" | "sum", _:
            return shared
        case "min" | "max" | "clip" | "abs", _:
            return shared if keeps_order else None
    if OPERATIONS[op].condition:
        return 0.0 if shared is not None and keeps_order else None
    return 0.0 if shared in (0.0, "any") else None  # exp and the like


def _shared(args: Sequence[_Degree]) -> _Degree:
    """The one degree that all have; 0 has every degree."""
    degrees = {arg for arg in args if arg != "any"}
    return "any" if not degrees else degrees.pop() if len(degrees) == 1 else None
