"""Recognises the losses of the service, however they are written.

Candidates get the numbers that stand in the expression as their settings, and are compared with
it on sequences that have drifted to both sides of all of them, with advantages of both signs and
of 0 and ratios of exactly 1: value and gradient have to agree to 12 digits everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise, product
from random import Random
from typing import Any

from rlc.algo.expressions.behaviour import derivative
from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.interpret import evaluator
from rlc.algo.expressions.program import NUMBER, Program
from rlc.algo.expressions.vocabulary import OPERATIONS, needs_batch
from rlc.records import Record, frozen

_TOLERANCE = 1e-12
_MOST_TRIALS = 300
_BESIDE = 1e-3  # how far from a number that decides something both sides of it are tried


@frozen(eq=False)
class Candidate:
    """A loss to compare with. ``settings`` are its numbers, of which the first is the smaller;
    ``write`` makes its node from theirs."""

    name: str
    settings: tuple[str, ...]
    write: Callable[[Builder, Mapping[str, int]], int]


@frozen(eq=False)
class KnownLoss(Record):
    """The loss that an expression is, and its settings.

    ``mean``: a sequence loss that is the mean of the known one over the tokens of a sequence,
    where the service sums them. ``one_advantage``: they are equal if all tokens of a sequence have
    the same advantage, and need not be otherwise.
    """

    name: str
    config: dict[str, float]
    mean: bool = False
    one_advantage: bool = False


_Sequence = Mapping[str, list[float]]
_Inputs = Mapping[str, Any]


def known_loss(program: Program, candidates: Sequence[Candidate]) -> KnownLoss | None:
    """Return the first of the candidates that a loss equals; None if there is none."""
    if needs_batch(program):
        return None  # they know one sequence
    numbers = sorted({node.value or 0.0 for node in program.nodes if node.op == NUMBER})
    sequences, reads = _sequences(numbers), set(program.inputs) - {"length"}
    own, mean = _LossValue(program), program.shape == "sequence"
    written = [_Candidate(candidate) for candidate in candidates]
    for one_advantage in (False, True) if mean else (False,):
        if one_advantage:
            sequences = [{**s, "adv": s["adv"][:1] * len(s["adv"])} for s in sequences]
        expected = _ReferenceLoss(own, sequences)
        for loss in written:
            if loss.reads == reads:
                for config in _settings(loss.candidate, numbers):
                    if loss.agrees(config, expected, mean):
                        return KnownLoss(loss.candidate.name, config, mean, one_advantage)
    return None


class _LossValue:
    """The value and the gradient of a loss."""

    def __init__(self, program: Program) -> None:
        self.program, self._value = program, evaluator(program)

    def value(self, inputs: _Inputs) -> float:
        value = self._value(inputs)
        return OPERATIONS["sum"].of(value) if isinstance(value, list) else value

    def slopes(self, inputs: _Inputs) -> list[float]:
        slope = self._slope(inputs)
        return slope if isinstance(slope, list) else [slope] * len(inputs["logp"])

    @cached_property
    def _slope(self) -> Callable[[_Inputs], Any]:
        return evaluator(derivative(self.program))


class _ReferenceLoss:
    """A loss on some sequences, its value and gradient on each computed once, when needed."""

    def __init__(self, loss: _LossValue, sequences: Sequence[_Sequence]) -> None:
        self.sequences = sequences
        self.value = cache(lambda index: loss.value(sequences[index]))
        self.slopes = cache(lambda index: loss.slopes(sequences[index]))


class _Candidate(_LossValue):
    """A candidate as a program that reads its settings like inputs."""

    def __init__(self, candidate: Candidate) -> None:
        builder = Builder("loss", candidate.settings)
        nodes = {name: builder.input(name) for name in candidate.settings}
        super().__init__(builder.program(candidate.write(builder, nodes)))
        self.candidate = candidate
        self.reads = set(self.program.inputs) - set(candidate.settings)

    def agrees(self, config: Mapping[str, float], expected: _ReferenceLoss, mean: bool) -> bool:
        shares = [1 / len(x["logp"]) if mean else 1.0 for x in expected.sequences]
        return all(
            _close(self.value({**sequence, **config}) * shares[index], expected.value(index))
            for index, sequence in enumerate(expected.sequences)
        ) and all(
            _close(slope * shares[index], own)
            for index, sequence in enumerate(expected.sequences)
            for slope, own in zip(
                self.slopes({**sequence, **config}), expected.slopes(index), strict=True
            )
        )


def _settings(candidate: Candidate, numbers: Sequence[float]) -> Iterator[dict[str, float]]:
    """Yield settings to try: the expression's numbers, then those they may be computed from."""
    made = [f(x) for f in (abs, lambda x: 2 * x, _exp, lambda x: -2 * x) for x in numbers]
    values = [x for x in dict.fromkeys([*numbers, 0.0, *made]) if x >= 0]
    picks = product(range(len(values)), repeat=len(candidate.settings))
    rising = [pick for pick in picks if all(values[a] < values[b] for a, b in pairwise(pick))]
    for pick in sorted(rising, key=lambda pick: max(pick, default=0))[:_MOST_TRIALS]:
        yield {name: values[i] for name, i in zip(candidate.settings, pick, strict=True)}


def _exp(x: float) -> float:
    return OPERATIONS["exp"].of(x) if abs(x) < 30 else -1.0


def _close(a: float, b: float) -> bool:
    return a == b or abs(a - b) <= _TOLERANCE * max(1.0, abs(a), abs(b))


def _sequences(numbers: Sequence[float]) -> list[_Sequence]:
    """Return sequences of 1 to 6 tokens, the same each time for the same numbers."""
    random = Random(0)
    sides = [x + e for x in numbers for e in (-_BESIDE, _BESIDE)]
    drifts = [0.0, 0.0, 0.1, -0.1, 0.4, -0.4, 1.0, -1.0, 2.5, -2.5]
    drifts += [math.log(x) for x in sides if 0 < x < 1e9] + [x for x in sides if abs(x) < 20]
    advantages = [0.0, 1.0, -1.0, 0.3, -2.0, *(x for x in sides if abs(x) < 1e6)]
    likely = [x for x in sides if x < 0] or [-1.0]
    found: list[_Sequence] = []
    for index, drift in enumerate(drifts):
        length = 6 - index % 6
        together = [drift + 0.01 * (t - (length - 1) / 2) for t in range(length)]
        for drift_T in (together, [drift, *random.choices(drifts, k=length - 1)]):
            logp_T = [min(d, 0.0) - random.uniform(0.01, 6.0) for d in drift_T]
            if index % 3 == 0:
                logp_T[0] = random.choice(likely)
            found.append(
                {
                    "logp": logp_T,
                    "logq": [p - d for p, d in zip(logp_T, drift_T, strict=True)],
                    "adv": random.choices(advantages, k=length),
                    "ref": [-random.uniform(0.01, 6.0) for _ in range(length)],
                }
            )
    return found
