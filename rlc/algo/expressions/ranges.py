"""The values that the parts of an expression can have, and where one is undefined.

Every part gets an interval, from those of the inputs (logprobs are at most 0) and from the
conditions above it: within ``where(adv > 0, log(adv), 0)`` the logarithm is of a positive number.
Parts that no condition can reach are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from rlc.algo.expressions.program import INPUT, OperationNode, Program
from rlc.algo.expressions.vocabulary import (
    OPERATIONS,
    differentiable,
    input_of,
    others_of,
    shapes,
    spreads,
)
from rlc.records import Record, evolve, frozen


@frozen
class Interval(Record):
    """The numbers from ``low`` to ``high``, without an ``open`` end, and without 0 if ``nonzero``.
    An infinite end is open."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    high_open: bool = False
    nonzero: bool = False

    @property
    def empty(self) -> bool:
        ends_belong = not (self.low_open or self.high_open or (self.nonzero and self.low == 0))
        return self.low > self.high or (self.low == self.high and not ends_belong)

    @property
    def is_point(self) -> bool:
        return self.low == self.high

    def has(self, x: float) -> bool:
        above = x > self.low or (x == self.low and not self.low_open)
        below = x < self.high or (x == self.high and not self.high_open)
        return above and below and not (x == 0 and self.nonzero)

    def __str__(self) -> str:
        if self.is_point:
            return f"{self.low:g}"
        if math.isinf(self.low) and math.isinf(self.high):
            return "any number"
        if math.isinf(self.high):
            return f"{'above' if self.low_open else 'at least'} {self.low:g}"
        if math.isinf(self.low):
            return f"{'below' if self.high_open else 'at most'} {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, self.high_open, self.low_open, self.nonzero)

    def __add__(self, other: Interval) -> Interval:
        return Interval(
            -math.inf if -math.inf in (self.low, other.low) else self.low + other.low,
            math.inf if math.inf in (self.high, other.high) else self.high + other.high,
            self.low_open or other.low_open,
            self.high_open or other.high_open,
        )

    def __mul__(self, other: Interval) -> Interval:
        corners = [
            _corner(x, y)
            for x in ((self.low, self.low_open), (self.high, self.high_open))
            for y in ((other.low, other.low_open), (other.high, other.high_open))
        ]
        high = max((value, not is_open) for value, is_open in corners)
        return _between(min(corners), high, not (self.has(0) or other.has(0)))

    def __and__(self, other: Interval) -> Interval:
        """Return the intersection; it may be empty."""
        (low_a, high_a), (low_b, high_b) = self._ends(), other._ends()
        return _between(max(low_a, low_b), min(high_a, high_b), self.nonzero or other.nonzero)

    def __or__(self, other: Interval) -> Interval:
        """Return the smallest interval that holds both."""
        (low_a, high_a), (low_b, high_b) = self._ends(), other._ends()
        nonzero = not (self.has(0) or other.has(0))
        return _between(min(low_a, low_b), max(high_a, high_b), nonzero)

    def __abs__(self) -> Interval:
        if self.low >= 0:
            return self
        if self.high <= 0:
            return -self
        high = max((-self.low, not self.low_open), (self.high, not self.high_open))
        return _between((0.0, self.nonzero), high, self.nonzero)

    def _ends(self) -> tuple[_End, _End]:
        """Return both ends in an order in which a smaller low and a larger high end hold more."""
        return (self.low, self.low_open), (self.high, not self.high_open)


_End = tuple[float, bool]


def _between(low: _End, high: _End, nonzero: bool) -> Interval:
    return Interval(low[0], high[0], low[1], not high[1], nonzero)


def _corner(x: _End, y: _End) -> _End:
    """Return the product of two ends, and whether it is open."""
    if x[0] == 0 or y[0] == 0:
        return 0.0, not ((x[0] == 0 and not x[1]) or (y[0] == 0 and not y[1]))
    return x[0] * y[0], x[1] or y[1]


def point(x: float) -> Interval:
    return Interval(x, x)


def reciprocal(a: Interval) -> Interval:
    """Return the interval of one over the numbers other than 0."""
    if a.low < 0 < a.high:
        return Interval(nonzero=True)
    if a.high <= 0:
        return -reciprocal(-a)
    low = 1 / a.high if a.high else math.inf
    high = 1 / a.low if a.low else math.inf
    return Interval(low, high, a.high_open or math.isinf(a.high), a.low_open or not a.low)


def minimum(a: Interval, b: Interval) -> Interval:
    (low_a, high_a), (low_b, high_b) = a._ends(), b._ends()
    return _between(min(low_a, low_b), min(high_a, high_b), a.nonzero and b.nonzero)


def maximum(a: Interval, b: Interval) -> Interval:
    return -minimum(-a, -b)


def increasing(op: str, a: Interval) -> Interval:
    """Return the image of an interval under an increasing function."""
    of = OPERATIONS[op].of
    low, high = of(a.low), of(a.high)
    return Interval(low, high, a.low_open or math.isinf(a.low), a.high_open or math.isinf(a.high))


def total(a: Interval) -> Interval:
    """Return the sum of one or more of its numbers."""
    low = a.low if a.low >= 0 else -math.inf
    high = a.high if a.high <= 0 else math.inf
    return Interval(low, high, a.low_open, a.high_open)


def average(a: Interval) -> Interval:
    """Return the mean of some of its numbers."""
    return evolve(a, nonzero=a.nonzero and not a.low < 0 < a.high)


_MOST_CASES = 200  # branches that are followed with the facts of their conditions

_Facts = Mapping[int, Interval]  # the values of nodes that conditions imply
_When = Literal["always", "advantage of 0", "possibly"]


@frozen(eq=False)
class UndefinedPart(Record):
    """A part that can be undefined.

    ``node`` is its position, ``argument`` that of the argument it is undefined for, whose values
    are ``range``; ``what`` describes it. ``when``: ``always``, wherever it is computed; for an
    ``advantage of 0``, which groups of equal rewards have; or ``possibly``.
    """

    node: int
    argument: int
    what: str
    range: Interval
    when: _When


@frozen(eq=False)
class ConstantCondition(Record):
    """A condition at ``node`` that ``holds`` always, or never."""

    node: int
    holds: bool


@frozen(eq=False)
class Ranges(Record):
    """The values of the result and, in order, the undefined parts and constant conditions."""

    result: Interval
    undefined: tuple[UndefinedPart, ...]
    decided: tuple[ConstantCondition, ...]


def ranges(program: Program) -> Ranges:
    """Return the values that a program can have, where it is undefined, and which of its
    conditions decide nothing."""
    general = _Ranges(program, {})
    result = general.of(program.output, general.given)
    adv = [i for i, node in enumerate(program.nodes) if node.op == INPUT and node.name == "adv"]
    at_zero = _Ranges(program, {position: point(0.0) for position in adv})
    if adv:
        at_zero.of(program.output, at_zero.given)
    undefined = []
    for node, (argument, what, values) in sorted({**at_zero.found, **general.found}.items()):
        at_zero_only: _When = "advantage of 0" if node in at_zero.certain else "possibly"
        when: _When = "always" if node in general.certain else at_zero_only
        undefined.append(UndefinedPart(node, argument, what, values, when))
    decided = [
        ConstantCondition(node, verdicts == {True})
        for node, verdicts in sorted(general.verdicts.items())
        if verdicts in ({True}, {False})
    ]
    return Ranges(result, tuple(undefined), tuple(decided))


class _Ranges:
    def __init__(self, program: Program, given: _Facts) -> None:
        self.program, self.given = program, given
        self.active, self.spread = differentiable(program), spreads(program)
        self.shapes = shapes(program)
        self.beyond: dict[int, Interval] = {}  # branches, without what their conditions say
        self.cases = 0
        self.found: dict[int, tuple[int, str, Interval]] = {}
        self.certain: set[int] = set()
        self.verdicts: dict[int, set[bool | None]] = {}

    def of(self, root: int, facts: _Facts) -> Interval:
        """Return the values of a node, where the facts hold."""
        nodes, needed, waiting = self.program.nodes, set[int](), [root]
        while waiting:
            if (position := waiting.pop()) not in needed:
                needed.add(position)
                node = nodes[position]
                waiting += node.args[:1] if node.op == "where" else node.args
        values: dict[int, Interval] = {}
        for position in sorted(needed):
            node = nodes[position]
            if node.op == "where":
                value = self.choice(node, facts, values)
            elif node.op in OPERATIONS and OPERATIONS[node.op].condition:
                continue  # read by `where`, which asks for both sides
            else:
                value = self.value(position, node, [values[arg] for arg in node.args])
            known = facts.get(position)
            values[position] = value if known is None else value & known
        return values.get(root, Interval())

    def choice(
        self, node: OperationNode, facts: _Facts, values: Mapping[int, Interval]
    ) -> Interval:
        """Return the values of a `where`: those of the branches that its condition can choose."""
        condition, *branches = node.args
        compared = self.program.nodes[condition]
        sides = [values[arg] for arg in compared.args]
        reached: list[Interval] = []
        possible = []
        for holds, branch in zip((True, False), branches, strict=True):
            more = self.implied(compared, sides, holds)
            within = {n: facts.get(n, values.get(n, Interval())) & i for n, i in more.items()}
            if any(interval.empty for interval in within.values()):
                continue
            possible.append(holds)
            self.cases += 1
            if self.cases < _MOST_CASES:
                reached.append(self.of(branch, {**facts, **within}))
            else:  # each once: one `where` in the other would be twice the work every time
                if branch not in self.beyond:
                    self.beyond[branch] = self.of(branch, self.given)
                reached.append(self.beyond[branch])
        verdict = possible[0] if len(possible) == 1 else None
        self.verdicts.setdefault(condition, set()).add(verdict)
        if not reached:  # the facts contradict each other: nothing gets here
            return Interval()
        return reached[0] | reached[-1]

    def implied(
        self, condition: OperationNode, sides: list[Interval], holds: bool
    ) -> dict[int, Interval]:
        """Return the values of the nodes that a condition compares, if it holds or does not."""
        (a, b), (of_a, of_b) = condition.args, sides
        op = condition.op if holds else _OPPOSITE[condition.op]
        if op in (">", ">="):
            a, b, of_a, of_b, op = b, a, of_b, of_a, "<" if op == ">" else "<="
        found: dict[int, Interval] = {}
        difference = Interval()
        match op:
            case "<" | "<=":
                strict = op == "<"
                found[a] = Interval(high=of_b.high, high_open=strict or of_b.high_open)
                found[b] = Interval(low=of_a.low, low_open=strict or of_a.low_open)
                difference = Interval(high=0.0, high_open=strict)
            case "==":
                found = {a: of_b, b: of_a}
                difference = point(0.0)
            case "!=":
                difference = Interval(nonzero=True)
                for side, values, other in ((a, of_a, of_b), (b, of_b, of_a)):
                    if other.is_point:
                        found[side] = _without(values, other.low)
        for position, node in enumerate(self.program.nodes):
            if node.op == "-" and node.args == (a, b):
                found[position] = difference
            elif node.op == "-" and node.args == (b, a):
                found[position] = -difference
        for compared, interval in list(found.items()):
            inner = self.program.nodes[compared]
            if inner.op == "abs" and not interval.has(0) and interval.low >= 0:
                found[inner.args[0]] = Interval(nonzero=True)
        return found

    def or_none(self, node: OperationNode, values: Interval) -> Interval:
        """Return the values of a statistic, with the 0 that it is of no tokens."""
        return values | point(0.0) if self.shapes[node.args[0]] == "turn_token" else values

    def value(self, position: int, node: OperationNode, args: list[Interval]) -> Interval:
        """Return the values of an operation, and note arguments that it is undefined for."""
        match node.op, args:
            case "number", _:
                return point(node.value or 0.0)
            case "input", _:
                known = input_of(self.program.kind, node.name or "")
                return Interval(known.low, known.high)
            case "+", (a, b):
                return a + b
            case "-", (a, b):
                return a + -b
            case "*", (a, b):
                if node.args[0] == node.args[1]:
                    return abs(a) * abs(a)
                return a * b
            case "/", (a, b):
                if self.spread[node.args[1]]:
                    return Interval()  # 0 where all that it divides by is 0
                if b.has(0):
                    self.note(position, 1, "a division by what can be 0", b, b.is_point)
                    return Interval()
                return a * reciprocal(b)
            case "neg", (x,):
                return -x
            case "min", (a, b):
                return minimum(a, b)
            case "max", (a, b):
                return maximum(a, b)
            case "clip", (x, low, high):
                return minimum(maximum(x, low), high)
            case "abs", (x,):
                return abs(x)
            case "log", (x,):
                if x.low < 0 or x.has(0):
                    what = "a logarithm of what can be 0 or less"
                    self.note(position, 0, what, x, x.high <= 0)
                return increasing("log", x & _POSITIVE)
            case "sqrt", (x,):
                if x.low < 0:
                    self.note(position, 0, "a root of what can be negative", x, x.high < 0)
                elif x.has(0) and self.active[position]:
                    what = "a root of what can be 0, where its slope is infinite"
                    self.note(position, 0, what, x, x.is_point)
                return increasing("sqrt", x & _NOT_NEGATIVE)
            case "min over" | "max over" | "mean over" | "quantile over", (x, *_, singleton):
                return self.or_none(node, x | singleton)
            case "first over" | "last over", (x,):
                return self.or_none(node, x)
            case "std over" | "rms over", (_, _, _, singleton):
                return _NOT_NEGATIVE | singleton
            case "count over" | "rank over", _:
                some = Interval(low=1.0)
                return _NOT_NEGATIVE if others_of(node.over) else self.or_none(node, some)
            case "sum over", (x, _):
                return _NOT_NEGATIVE if x.low >= 0 else Interval()
            case "discounted" | "running", _:
                return Interval()
            case "batch_top" | "batch_draw", _:
                return Interval(0.0, 1.0)
            case "mean" | "batch_mean", (x,):
                return average(x)
            case "sum", (x,):
                return total(x)
            case "stop", (x,):
                return x
            case op, (x,):
                return increasing(op, x)
        raise AssertionError(node.op)

    def note(self, node: int, place: int, what: str, range: Interval, certain: bool) -> None:
        self.found.setdefault(node, (self.program.nodes[node].args[place], what, range))
        if certain:
            self.certain.add(node)


_POSITIVE = Interval(low=0.0, low_open=True)
_NOT_NEGATIVE = Interval(low=0.0)
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _without(values: Interval, x: float) -> Interval:
    """Return an interval without one of its numbers, if that is 0 or an end."""
    return Interval(
        values.low,
        values.high,
        values.low_open or values.low == x,
        values.high_open or values.high == x,
        values.nonzero or x == 0,
    )
