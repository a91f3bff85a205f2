"""Recognises the losses of the service, and those over preferences, however they are written.

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
from rlc.algo.expressions.inputs import OF_BATCH
from rlc.algo.expressions.interpret import evaluator
from rlc.algo.expressions.program import NUMBER, Program
from rlc.algo.expressions.vocabulary import INPUTS, OPERATIONS, needs_batch, trained
from rlc.records import Record, frozen

_TOLERANCE = 1e-12
_MOST_TRIALS, _MOST_PREFERENCES = 300, 2_000
_BESIDE = 1e-3  # how far from a number that decides something both sides of it are tried


@frozen(eq=False)
class Candidate:
    """A loss to compare with. ``settings`` are its numbers, of which the first is the smaller;
    ``program`` reads them like inputs."""

    name: str
    settings: tuple[str, ...]
    program: Program


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


def known_preference(program: Program, candidates: Mapping[str, Program]) -> KnownLoss | None:
    """Return the first of the candidates, programs that read their settings like inputs, that a
    loss over preferences equals; None if there is none."""
    numbers = sorted({node.value or 0.0 for node in program.nodes if node.op == NUMBER})
    few, many = (_preferences(numbers, count) for count in (2, 40))
    own = _PreferenceValues(program)
    for name, candidate in candidates.items():
        settings = [one for one in candidate.inputs if one not in INPUTS["preference"]]
        reads = set(candidate.inputs) - set(settings)
        if reads != set(program.inputs) or candidate.shape != program.shape:
            continue
        other, made = _PreferenceValues(candidate), list[float]()
        for value in numbers:
            made += [value, 1 - value, *((1 / value, 0.5 / value) if value else ())]
        values = [x for x in dict.fromkeys([*numbers, 0.0, 1.0, *made]) if x >= 0]
        picks = sorted(product(range(len(values)), repeat=len(settings)), key=max)
        for pick in picks[:_MOST_PREFERENCES]:
            config = {key: values[at] for key, at in zip(settings, pick, strict=True)}
            if all(own.agrees(other, batch, config) for batch in (few, many)):
                return KnownLoss(name, config)
    return None


class _PreferenceValues:
    """The values of a preference loss and of its gradient on a batch."""

    def __init__(self, program: Program) -> None:
        slopes = (derivative(program, by=name) for name in trained(program))
        self._of = [evaluator(part, OF_BATCH["preference"]) for part in (program, *slopes)]

    def agrees(self, other: _PreferenceValues, batch: _Inputs, config: Mapping[str, float]) -> bool:
        """Return whether another loss with some settings has the same."""
        values = {**batch, **config}
        for mine, its in zip(self._of, other._of, strict=True):
            pairs = zip(_column(mine(batch), batch), _column(its(values), batch), strict=True)
            if not all(math.isfinite(b) and _close(a, b) for a, b in pairs):
                return False
        return True


def _column(value: Any, batch: _Inputs) -> list[float]:
    """Return a value of each pair or reply."""
    return value if isinstance(value, list) else [value] * len(batch["good"])


def _preferences(numbers: Sequence[float], count: int) -> dict[str, list[float]]:
    """Return the inputs of some pairs and labelled replies, but those of their tokens; the same
    each time. Margins are near the numbers that a loss has, and far from them."""
    random = Random(0)
    batch: dict[str, list[float]] = {name: [] for name in INPUTS["preference"]}
    apart = [0.0, 0.1, -0.1, 3.0, -3.0, *(x + e for x in numbers for e in (-_BESIDE, _BESIDE))]
    for index in range(count):
        for name in batch:
            batch[name].append(-random.uniform(0.5, 30.0))
        for name in ("chosen", "rejected", "mismatched"):
            batch[f"{name}_ref"][-1] = batch[name][-1] + random.choice(apart)
            batch[f"{name}_length"][-1] = float(random.randint(1, 9))
        batch["ref"][-1] = batch["logp"][-1] + random.choice(apart)
        batch["length"][-1] = float(random.randint(1, 9))
        batch["good"][-1] = float(index % 2)
    for name in ("chosen_nll", "chat_nll"):
        batch[name] = [random.uniform(0.1, 4.0)] * count
    return batch


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
    def __init__(self, candidate: Candidate) -> None:
        super().__init__(candidate.program)
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
