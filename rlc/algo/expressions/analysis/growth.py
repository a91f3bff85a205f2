"""How large a loss grows: with a ratio that has run away, and at all."""

from __future__ import annotations

import math

from rlc.algo.expressions.derivative import derivative
from rlc.algo.expressions.program import Program
from rlc.algo.expressions.scalars import evaluate
from rlc.algo.expressions.vocabulary import shapes
from rlc.records import Record, evolve, frozen

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
    largest = 0.0
    for drifts in ((drift,), (drift, 0.0, -0.1)):
        inputs = {
            "logp": [-33.0 + max(d, 0.0) for d in drifts],
            "logq": [-33.0 - min(d, 0.0) for d in drifts],
            "ref": [-34.0 for _ in drifts],
            "adv": [sign for _ in drifts],
        }
        gradient = evaluate(slope, inputs)
        values = gradient if isinstance(gradient, list) else [gradient]
        largest = max([largest, *map(abs, values)])
        if any(math.isnan(value) for value in values):
            return math.inf
    return largest
