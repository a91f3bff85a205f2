"""What values the parts of an expression can have, and where one is undefined.

Every part gets an interval, from those of the inputs (logprobs are at most 0) and from what the
conditions above it say: within ``where(adv > 0, log(adv), 0)`` the logarithm is of a positive
number. Parts that no condition can reach are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from rlc.algo.expressions.analysis import intervals
from rlc.algo.expressions.analysis.intervals import Interval, hull, meet, point
from rlc.algo.expressions.program import INPUT, OperationNode, Program
from rlc.algo.expressions.reach import differentiable
from rlc.algo.expressions.vocabulary import OPERATIONS, input_of
from rlc.records import Record, frozen

_MOST_CASES = 200  # branches that are looked at with what their conditions say

_Facts = Mapping[int, Interval]  # what conditions say of nodes


@frozen(eq=False)
class UndefinedPart(Record):
    """A part that can be undefined.

    ``node`` is its position, ``argument`` the position of what it cannot be computed of, which
    has the values ``range``. ``what`` says it in words. ``when``: ``always``, wherever it is
    computed; for an ``advantage of 0``, which groups of equal rewards have; or ``possibly``.
    """

    node: int
    argument: int
    what: str
    range: Interval
    when: Literal["always", "advantage of 0", "possibly"]


@frozen(eq=False)
class ConstantCondition(Record):
    """A condition at ``node`` that ``holds`` always, or never."""

    node: int
    holds: bool


@frozen(eq=False)
class Ranges(Record):
    """What :func:`ranges` found: the values of the result and, in order, what to look at."""

    result: Interval
    undefined: tuple[UndefinedPart, ...]
    decided: tuple[ConstantCondition, ...]


def ranges(program: Program) -> Ranges:
    """Return the values that a program can have, where it is undefined, and which of its
    conditions decide nothing."""
    general = _Ranges(program, {})
    result = general.of(program.output, general.given)
    certain = general.certain
    adv = [i for i, node in enumerate(program.nodes) if node.op == INPUT and node.name == "adv"]
    at_zero = _Ranges(program, {position: point(0.0) for position in adv})
    if adv:
        at_zero.of(program.output, at_zero.given)
    undefined = []
    for node, (argument, what, values) in sorted({**at_zero.found, **general.found}.items()):
        when: Literal["always", "advantage of 0", "possibly"] = "possibly"
        if node in certain:
            when = "always"
        elif node in at_zero.certain:
            when = "advantage of 0"
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
        self.active = differentiable(program)
        self.beyond: dict[int, Interval] = {}  # branches, without what their conditions say
        self.cases = 0
        self.found: dict[int, tuple[int, str, Interval]] = {}
        self.certain: set[int] = set()
        self.verdicts: dict[int, set[bool | None]] = {}

    def of(self, root: int, facts: _Facts) -> Interval:
        """The values of a node, where the facts hold."""
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
            values[position] = value if known is None else meet(value, known)
        return values.get(root, Interval())

    def choice(
        self, node: OperationNode, facts: _Facts, values: Mapping[int, Interval]
    ) -> Interval:
        """The values of a `where`: those of each branch that its condition can choose."""
        condition, *branches = node.args
        compared = self.program.nodes[condition]
        sides = [values[arg] for arg in compared.args]
        reached: list[Interval] = []
        possible = []
        for holds, branch in zip((True, False), branches, strict=True):
            more = self.implied(compared, sides, holds)
            within = {n: meet(facts.get(n, values.get(n, Interval())), i) for n, i in more.items()}
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
        return hull(reached[0], reached[-1])

    def implied(
        self, condition: OperationNode, sides: list[Interval], holds: bool
    ) -> dict[int, Interval]:
        """What a condition says of the nodes it compares, if it holds or if it does not."""
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
                found[position] = intervals.negative(difference)
        for compared, interval in list(found.items()):
            inner = self.program.nodes[compared]
            if inner.op == "abs" and not interval.has(0) and interval.low >= 0:
                found[inner.args[0]] = Interval(nonzero=True)
        return found

    def value(self, position: int, node: OperationNode, args: list[Interval]) -> Interval:
        """The values of an operation; what it cannot be computed of is noted."""
        match node.op, args:
            case "number", _:
                return point(node.value or 0.0)
            case "input", _:
                known = input_of(self.program.kind, node.name or "")
                return Interval(known.low, known.high)
            case "+", (a, b):
                return intervals.add(a, b)
            case "-", (a, b):
                return intervals.add(a, intervals.negative(b))
            case "*", (a, b):
                if node.args[0] == node.args[1]:
                    return intervals.square(a)
                return intervals.multiply(a, b)
            case "/", (a, b):
                if b.has(0):
                    self.note(position, 1, "a division by what can be 0", b, b.is_point)
                    return Interval()
                return intervals.multiply(a, intervals.reciprocal(b))
            case "neg", (x,):
                return intervals.negative(x)
            case "min", (a, b):
                return intervals.minimum(a, b)
            case "max", (a, b):
                return intervals.maximum(a, b)
            case "clip", (x, low, high):
                return intervals.minimum(intervals.maximum(x, low), high)
            case "abs", (x,):
                return intervals.magnitude(x)
            case "log", (x,):
                if x.low < 0 or x.has(0):
                    what = "a logarithm of what can be 0 or less"
                    self.note(position, 0, what, x, x.high <= 0)
                return intervals.increasing("log", meet(x, _POSITIVE))
            case "sqrt", (x,):
                if x.low < 0:
                    self.note(position, 0, "a root of what can be negative", x, x.high < 0)
                elif x.has(0) and self.active[position]:
                    what = "a root of what can be 0, where its slope is infinite"
                    self.note(position, 0, what, x, x.is_point)
                return intervals.increasing("sqrt", meet(x, _NOT_NEGATIVE))
            case "batch_top" | "batch_draw", _:
                return Interval(0.0, 1.0)
            case "mean" | "batch_mean", (x,):
                return intervals.average(x)
            case "sum", (x,):
                return intervals.total(x)
            case "stop", (x,):
                return x
            case op, (x,):
                return intervals.increasing(op, x)
        raise AssertionError(node.op)

    def note(self, node: int, place: int, what: str, range: Interval, certain: bool) -> None:
        self.found.setdefault(node, (self.program.nodes[node].args[place], what, range))
        if certain:
            self.certain.add(node)


_POSITIVE = Interval(low=0.0, low_open=True)
_NOT_NEGATIVE = Interval(low=0.0)
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


def _without(values: Interval, x: float) -> Interval:
    """An interval without one of its numbers, if that is 0 or an end."""
    return Interval(
        values.low,
        values.high,
        values.low_open or values.low == x,
        values.high_open or values.high == x,
        values.nonzero or x == 0,
    )
