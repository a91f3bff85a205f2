"""How a loss behaves: how it scales with the advantages, how large it grows with a ratio that has
run away, and what it would be without its bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.derivative import derivative
from rlc.algo.expressions.program import INPUT, NUMBER, Program
from rlc.algo.expressions.scalars import evaluate
from rlc.algo.expressions.vocabulary import OPERATIONS, shapes
from rlc.records import Record, evolve, frozen

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


_NEAR, _FAR = (0.5, 1.0, 2.0), (16.0, 24.0, 32.0)  # log p − log q
_POLYNOMIAL = 1e4  # how much (16 / 2)⁴ grows; a ratio, or its root, grows by more than e⁷ each time


@frozen(eq=False)
class Boundedness(Record):
    """Whether the weight of a token in the gradient stays bounded as its ratio leaves 1, in either
    direction: for tokens with a ``positive`` and with a ``negative`` advantage.

    PPO's is bounded for the positive ones only; dual clip, CISPO and SAPO bound both.
    """

    positive: bool
    negative: bool


def ratio_is_bounded(program: Program) -> Boundedness:
    """Return whether the gradient grows more slowly than any power of the ratio, from its values
    at ratios up to e³² and down to e⁻³²; what grows like ``log ratio`` counts as bounded."""
    slope = derivative(program)
    return Boundedness(*(_is_bounded(slope, sign) for sign in (1.0, -1.0)))


@frozen(eq=False)
class Direction(Record):
    """Where gradient descent moves the logprobs of tokens on fresh rollouts.

    ``lowers_good``: those of tokens with a positive advantage fall. ``raises_bad``: those of tokens
    with a negative advantage rise. ``still``: neither moves at all.
    """

    lowers_good: bool
    raises_bad: bool
    still: bool


def direction(program: Program) -> Direction:
    """Return where a loss moves the policy, from its gradient near the policy that sampled."""
    slope = derivative(program)
    good, bad = (
        [
            value
            for drift in (-0.02, 0.02)  # the trainer's logprobs are never quite the sampler's
            for count in (1, 3)
            for value in _gradient(slope, sign, [drift] * count)
        ]
        for sign in (1.0, -1.0)
    )
    return Direction(
        lowers_good=all(value > 0 for value in good),
        raises_bad="adv" in program.inputs and all(value < 0 for value in bad),
        still=not any((*good, *bad)),
    )


def overflows_at(program: Program) -> int | None:
    """Return the first node that is never finite in sequences near the sampler's policy, or the
    output if the gradient is not; None if a loss and its gradient are finite in some of them."""
    sequences = [
        {
            "logp": [-0.5, -1.0, -2.0],
            "logq": [-0.5 + drift, -1.0, -2.0 - drift],
            "ref": [-0.6, -1.2, -1.8],
            "adv": [adv] * 3,
        }
        for drift in (0.0, 0.1)
        for adv in (1.0, -1.0, 0.5)
    ]

    def is_finite(part: Program) -> bool:
        results = (evaluate(part, inputs) for inputs in sequences)
        rows = (result if isinstance(result, list) else [result] for result in results)
        return any(all(map(math.isfinite, row)) for row in rows)

    if is_finite(program):
        return None if is_finite(derivative(program)) else program.output
    whole = (evolve(program, output=at, shape=shape) for at, shape in enumerate(shapes(program)))
    return next(part.output for part in whole if not is_finite(part))


def _is_bounded(slope: Program, sign: float) -> bool:
    near = max(_size(slope, sign, drift) for drift in (0.0, *_NEAR, *(-d for d in _NEAR)))
    for direction in (1, -1):
        far = max(_size(slope, sign, direction * drift) for drift in _FAR)
        if not far <= _POLYNOMIAL * max(near, 1e-6):
            return False
    return True


def _size(slope: Program, sign: float, drift: float) -> float:
    """The largest gradient in a sequence that has drifted as a whole, and in one with one token
    that has."""
    values = [v for d in ([drift], [drift, 0.0, -0.1]) for v in _gradient(slope, sign, d, -33.0)]
    return math.inf if any(map(math.isnan, values)) else max(map(abs, values))


def _gradient(
    slope: Program, sign: float, drifts: Sequence[float], logprob: float = -1.0
) -> list[float]:
    """Return the gradient by the logprob of each token of a sequence that has drifted so far; each
    has the advantage ``sign``."""
    inputs = {
        "logp": [logprob + max(d, 0.0) for d in drifts],
        "logq": [logprob - min(d, 0.0) for d in drifts],
        "ref": [logprob - 1.0 for _ in drifts],
        "adv": [sign for _ in drifts],
    }
    gradient = evaluate(slope, inputs)
    return gradient if isinstance(gradient, list) else [gradient]


def unbounded(program: Program) -> Program | None:
    """Return a loss without what holds the ratio, or anything else that depends on ``logp``, within
    bounds: ``clip(x, …)`` is ``x`` there, and so are the ``min`` and ``max`` of it and something
    that does not depend on ``logp``. None if there is no such bound."""
    builder = Builder(program.kind, program.inputs, bounded=False)
    made, depends = list[int](), list[bool]()
    held = False
    for node in program.nodes:
        args = [made[arg] for arg in node.args]
        reads = [arg for arg in node.args if depends[arg]]
        depends.append(node.name == "logp" if node.op == INPUT else bool(reads))
        if node.op == NUMBER:
            made.append(builder.number(node.value or 0.0))
        elif node.op == INPUT:
            made.append(builder.input(node.name or ""))
        elif node.op == "clip" and depends[node.args[0]]:
            held = True
            made.append(args[0])
        elif node.op in ("min", "max") and len(reads) == 1:
            held = True
            made.append(made[reads[0]])
        else:
            made.append(builder.apply(node.op, *args))
    return builder.part(made[program.output]) if held else None
