"""Analysis of losses: their derivative, how they scale with the advantages, whether they bound a
ratio that is far from 1, where they overflow, and what they are without their bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.inputs import LENGTHS, OF_TOKENS
from rlc.algo.expressions.interpret import evaluate
from rlc.algo.expressions.program import INPUT, NUMBER, OperationNode, Program, Shape
from rlc.algo.expressions.vocabulary import OPERATIONS, differentiable, shapes, trained
from rlc.records import Record, evolve, frozen

_Tangent = int | None  # a node; None: exactly 0


def derivative(program: Program, ties: bool = True, by: str = "logp") -> Program:
    """Return ∂L/∂logp_t, where L sums a token loss over the sampled tokens, or is the sequence's;
    of a preference loss ∂L/∂``by``, of a pair or a labelled reply, or of each of its tokens.

    Between two reductions (``mean``, ``sum``) a loss is computed token by token; there the
    derivative is taken forwards, by ``logp`` and by each reduction as if it were an input. The
    reductions' own derivatives then follow from the last to the first. What a `where` does not
    choose has no effect: a factor is always put inside the choice, never multiplied with the 0 of
    the other branch.

    The result is one value a token, or the same for all tokens. With ``ties`` it has the
    conventions of :mod:`~rlc.algo.expressions.evaluate` wherever it is evaluated; without, it is
    for readers: the two sides of a ``min``, ``max`` or ``abs`` are not distinguished
    from their boundary, and what can be cancelled is.
    """
    return _Derivation(program, ties, by).whole()


class _Derivation:
    def __init__(self, program: Program, ties: bool, by: str) -> None:
        self.program, self.ties, self.by = program, ties, by
        self.b = Builder(program.kind, program.inputs, bounded=False)
        self.made = self.b.copy(program)
        self.active = differentiable(program, by)

    def whole(self) -> Program:
        nodes = self.program.nodes
        reductions = [
            position
            for position, node in enumerate(nodes)
            if self.active[position] and node.args and OPERATIONS[node.op].reduces
        ]
        if not self.active[self.program.output]:
            return self.b.part(self.b.number(0))
        source = nodes.index(OperationNode(INPUT, name=self.by))
        effects: dict[int, _Tangent] = {}  # of each reduction on the whole loss
        for reduction in reversed(reductions):
            tangents = self.tangents(reduction)
            effect = tangents[self.program.output]
            if self.program.shape == "token":
                effect = self.over_tokens(effect, self.length("token"))
            for later, by in effects.items():
                inner = self.reduced(later, tangents[nodes[later].args[0]])
                effect = self.add(effect, self.times(by, inner))
            effects[reduction] = effect
        tangents = self.tangents(source)
        result = tangents[self.program.output]
        for reduction, by in sorted(effects.items()):
            tangent = tangents[nodes[reduction].args[0]]
            if self.b.shape(self.made[source]) not in OF_TOKENS:  # all tokens have that input
                share = self.times(by, self.reduced(reduction, tangent))
            else:
                share = self.times(by, tangent)
                if nodes[reduction].op == "mean":
                    share = self.divided(share, self.length_of(reduction))
            result = self.add(result, share)
        return self.b.part(self.b.number(0) if result is None else result)

    def length_of(self, reduction: int) -> int:
        """Return how many tokens a reduction is over."""
        return self.length(self.b.shape(self.made[self.program.nodes[reduction].args[0]]))

    def length(self, tokens: Shape) -> int:
        return self.b.input(LENGTHS[tokens])

    def reduced(self, reduction: int, tangent: _Tangent) -> _Tangent:
        """Return a tangent reduced as a node reduces its argument."""
        if self.program.nodes[reduction].op == "sum":
            return self.over_tokens(tangent, self.length_of(reduction))
        if tangent is None or self.b.shape(tangent) not in OF_TOKENS:
            return tangent
        return self.b.apply("mean", tangent)

    def over_tokens(self, tangent: _Tangent, length: int) -> _Tangent:
        """Return the sum of a tangent over so many tokens."""
        if tangent is None or self.b.shape(tangent) not in OF_TOKENS:
            return self.times(length, tangent)
        return self.b.apply("sum", tangent)

    def tangents(self, source: int) -> list[_Tangent]:
        """Return the derivative of each node by that at ``source``; reductions are constant."""
        found: list[_Tangent] = []
        for position, node in enumerate(self.program.nodes):
            if position == source:
                found.append(self.b.number(1))
            elif not (self.active[position] and node.args) or OPERATIONS[node.op].reduces:
                found.append(None)
            else:
                found.append(self.tangent(position, node, [found[arg] for arg in node.args]))
        return found

    def tangent(self, position: int, node: OperationNode, given: list[_Tangent]) -> _Tangent:
        """Return the derivative of an operation, from those of its arguments."""
        if not any(tangent is not None for tangent in given):
            return None
        result, args = self.made[position], [self.made[arg] for arg in node.args]
        match node.op, args, given:
            case "+", _, (da, db):
                return self.add(da, db)
            case "-", _, (da, db):
                return self.add(da, self.negative(db))
            case "*", (a, b), (da, db):
                if a == b:
                    return self.times(self.times(self.b.number(2), a), da)
                return self.add(self.times(da, b), self.times(a, db))
            case "/", (_, b), (da, db):
                less = self.divided(self.times(result, db), b)
                return self.add(self.divided(da, b), self.negative(less))
            case "neg", _, (dx,):
                return self.negative(dx)
            case "where", (condition, _, _), (_, da, db):
                return self.choice(condition, da, db)
            case "min" | "max", (a, b), (da, db):
                if da == db:
                    return da
                if not self.ties:
                    first = self.b.apply("<=" if node.op == "min" else ">=", a, b)
                    return self.choice(first, da, db)
                half = self.times(self.b.number(0.5), self.add(da, db))
                others = self.choice(self.b.apply("==", a, b), half, db)
                return self.choice(self.b.apply("<" if node.op == "min" else ">", a, b), da, others)
            case "clip", (x, low, high), (dx, dlow, dhigh):
                known = None not in (self.b.value(low), self.b.value(high))
                if known or (dlow is None and dhigh is None and not self.ties):
                    return self.choice(self.b.apply("==", x, result), dx, None)
                within = self.choice(self.b.apply("<=", x, high), dx, None)
                below = self.choice(self.b.apply("<", low, high), dlow, None)
                crossed = self.choice(self.b.apply("<", high, low), dhigh, None)
                return self.add(
                    self.add(
                        self.choice(self.b.apply("<=", low, x), within, None),
                        self.choice(self.b.apply("<", x, low), below, None),
                    ),
                    self.choice(self.b.apply(">", x, high), dhigh, crossed),
                )
            case "exp", _, (dx,):
                return self.times(result, dx)
            case "expm1", (x,), (dx,):
                return self.times(self.b.apply("exp", x), dx)
            case "log", (x,), (dx,):
                return self.divided(dx, x)
            case "sqrt", _, (dx,):
                return self.divided(dx, self.b.apply("*", self.b.number(2), result))
            case "abs", (x,), (dx,):
                zero = self.b.number(0)
                if not self.ties:
                    return self.choice(self.b.apply(">=", x, zero), dx, self.negative(dx))
                below = self.choice(self.b.apply("<", x, zero), self.negative(dx), None)
                return self.choice(self.b.apply(">", x, zero), dx, below)
            case "sigmoid", _, (dx,):
                rest = self.b.apply("-", self.b.number(1), result)
                return self.times(self.b.apply("*", result, rest), dx)
            case "softplus", (x,), (dx,):
                return self.times(self.b.apply("sigmoid", x), dx)
        raise AssertionError(node.op)

    def add(self, a: _Tangent, b: _Tangent) -> _Tangent:
        if a is None or b is None:
            return b if a is None else a
        (c, x), (d, y) = self.coefficient(a), self.coefficient(b)
        if x == y and x is not None:
            return self.times(self.b.number(c + d), x)
        if d < 0 and (positive := self.negative(b)) is not None:
            return self.b.apply("-", a, positive)
        if c < 0 and (positive := self.negative(a)) is not None:
            return self.b.apply("-", b, positive)
        return self.b.apply("+", a, b)

    def negative(self, x: _Tangent) -> _Tangent:
        if x is None:
            return None
        node, (c, rest) = self.b.node(x), self.coefficient(x)
        if node.op == "-" and node.name is None:
            return self.b.apply("-", *reversed(node.args))
        if rest is not None and c != 1:
            return self.times(self.b.number(-c), rest)
        return self.b.apply("neg", x)

    def choice(self, condition: int, a: _Tangent, b: _Tangent) -> _Tangent:
        if a is None and b is None:
            return None
        zero = self.b.number(0)
        return self.b.apply("where", condition, zero if a is None else a, zero if b is None else b)

    def times(self, a: _Tangent, b: _Tangent) -> _Tangent:
        """Return a product, its number in front, taken within the choices of both."""
        if a is None or b is None or 0 in (self.b.value(a), self.b.value(b)):
            return None
        if self.guarded(a):
            return self.within(a, lambda part: self.times(part, b))
        if self.guarded(b):
            return self.within(b, lambda part: self.times(a, part))
        if not self.ties:  # a / b * b reads as a, and is another float
            for one, other in ((a, b), (b, a)):
                over = self.b.node(one)
                if over.op == "/" and over.name is None:
                    rest = self.without(other, over.args[1])
                    if rest is not None:
                        return self.times(over.args[0], rest)
        (c, x), (d, y) = self.coefficient(a), self.coefficient(b)
        if c * d == 0 or not math.isfinite(c * d):
            return self.b.apply("*", a, b)
        rest = y if x is None else x if y is None else self.b.apply("*", x, y)
        number = self.b.number(c * d)
        return number if rest is None else self.b.apply("*", number, rest)

    def without(self, product: int, factor: int) -> _Tangent:
        """Return a product without one of its factors; None if it does not have it."""
        if product == factor:
            return self.b.number(1)
        node = self.b.node(product)
        if node.op == "*" and node.name is None:
            left, right = node.args
            if (rest := self.without(left, factor)) is not None:
                return self.times(rest, right)
            if (rest := self.without(right, factor)) is not None:
                return self.times(left, rest)
        return None

    def divided(self, tangent: _Tangent, by: int) -> _Tangent:
        """Return a quotient, taken within the choices of the tangent."""
        if tangent is None or self.b.value(tangent) == 0:
            return None
        if self.guarded(tangent):
            return self.within(tangent, lambda part: self.divided(part, by))
        return self.b.apply("/", tangent, by)

    def within(self, tangent: int, change: Callable[[_Tangent], _Tangent]) -> _Tangent:
        """Return a guarded tangent with each of its branches or terms changed."""
        node = self.b.node(tangent)
        if node.op == "where":
            condition, a, b = node.args
            return self.choice(condition, change(a), change(b))
        first, *rest = (change(arg) for arg in node.args)
        if node.op == "neg":
            return self.negative(first)
        return self.add(first, rest[0] if node.op == "+" else self.negative(rest[0]))

    def guarded(self, tangent: int) -> bool:
        """Return whether a tangent is 0 by a choice, so that no factor may come before it."""
        node = self.b.node(tangent)
        if node.op == "where" and node.name is None:
            return any(self.b.value(side) == 0 or self.guarded(side) for side in node.args[1:])
        if node.op in ("+", "-", "neg"):
            return all(self.guarded(arg) for arg in node.args)
        return False

    def coefficient(self, node: int) -> tuple[float, int | None]:
        """Return a node as a number times another node, or as a number alone."""
        of = self.b.node(node)
        if of.op == NUMBER:
            return of.value or 0.0, None
        if of.op == "neg":
            number, rest = self.coefficient(of.args[0])
            return -number, rest
        if of.op == "*" and of.name is None:
            for number, rest in (of.args, of.args[::-1]):
                if (value := self.b.value(number)) is not None:
                    return value, rest
        return 1.0, node


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
    """Return the degree of each node; if ``negative``, one that holds for negative factors too."""
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
    """Return the degree that all have, None if they differ; 0 has every degree."""
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

    def is_bounded(sign: float) -> bool:
        near = max(_size(slope, sign, drift) for drift in (0.0, *_NEAR, *(-d for d in _NEAR)))
        most = _POLYNOMIAL * max(near, 1e-6)
        return all(_size(slope, sign, side * drift) <= most for side in (1, -1) for drift in _FAR)

    return Boundedness(is_bounded(1.0), is_bounded(-1.0))


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
    """Return where a loss moves the policy, from its gradient near the policy that sampled. Of one
    that is computed over a batch nothing is known."""
    if program.kind == "preference":
        return _direction_of_preferences(program)
    if any(node.args and OPERATIONS[node.op].batch is not None for node in program.nodes):
        return Direction(False, False, False)
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


def _direction_of_preferences(program: Program) -> Direction:
    """Return where a preference loss moves replies, from its gradient near the reference: the good
    ones are the better of pairs, which are not to fall behind the worse."""
    slopes = {name: derivative(program, by=name) for name in trained(program)}
    good, bad = list[tuple[float, float]](), list[float]()
    for example in _preferences():
        sides = {"chosen": 0.0, "rejected": 0.0, "logp": 0.0}  # slopes by the logprobs of a reply
        for name, slope in slopes.items():
            found = evaluate(slope, example)
            side, _, what = name.partition("_")
            if what == "nll":
                sides["chosen"] -= found
            elif isinstance(found, list):
                sides[side] += sum(found)
            else:
                sides[side] += found * example[_length(side)]
        if program.shape == "pair":
            good.append((sides["chosen"], sides["rejected"]))
            bad.append(sides["rejected"])
        elif example["good"]:
            good.append((sides["logp"], 0.0))
        else:
            bad.append(sides["logp"])
    return Direction(
        lowers_good=all(better > 0 or better > worse for better, worse in good),
        raises_bad=all(value < 0 for value in bad),
        still=not any((*bad, *(better for better, _ in good))),
    )


def overflows_at(program: Program) -> int | None:
    """Return the first node that is never finite in sequences near the sampler's policy, or replies
    near the reference, or the output if the gradient is not; None if a loss and its gradient are
    finite in some of them."""
    sequences: Sequence[Mapping[str, Any]] = [
        {
            "logp": [-0.5, -1.0, -2.0],
            "logq": [-0.5 + drift, -1.0, -2.0 - drift],
            "ref": [-0.6, -1.2, -1.8],
            "adv": [adv] * 3,
        }
        for drift in (0.0, 0.1)
        for adv in (1.0, -1.0, 0.5)
    ]
    if program.kind == "preference":
        sequences = _preferences()

    def is_finite(part: Program) -> bool:
        results = (evaluate(part, inputs) for inputs in sequences)
        rows = (result if isinstance(result, list) else [result] for result in results)
        return any(all(map(math.isfinite, row)) for row in rows)

    if is_finite(program):
        slopes = (derivative(program, by=name) for name in trained(program))
        return None if all(map(is_finite, slopes)) else program.output
    parts = (evolve(program, output=at, shape=shape) for at, shape in enumerate(shapes(program)))
    return next(part.output for part in parts if not is_finite(part))


def _length(side: str) -> str:
    return "length" if side == "logp" else f"{side}_length"


def _preferences() -> list[dict[str, Any]]:
    """Return the inputs of pairs and labelled replies near the reference, each with all of them."""
    found = []
    for drift in (-0.02, 0.02):
        for good, replies in enumerate(([-0.4, -0.9, -1.5], [-1.1, -2.0])):
            others = [-1.9, -2.3] if good else [-0.5, -0.6, -0.8]
            example: dict[str, Any] = {"good": float(good), "chosen_nll": 0.9, "chat_nll": 1.1}
            rated = (0.9, 0.4) if good else (8.0, 5.0)
            example |= {"chosen_rating": rated[0], "rejected_rating": rated[1]}
            example |= {"rating_margin": rated[0] - rated[1], "rating": rated[1 - good]}
            for name, tokens, moved in (
                ("chosen", replies, drift),
                ("rejected", others, -drift),
                ("logp", replies, drift),
                ("mismatched", others, drift),
            ):
                known = [token - moved for token in tokens]
                ref = "ref" if name == "logp" else f"{name}_ref"
                example |= {name: sum(tokens), f"{name}_token": tokens, ref: sum(known)}
                example |= {f"{ref}_token": known, _length(name): float(len(tokens))}
            found.append(example)
    return found


def _size(slope: Program, sign: float, drift: float) -> float:
    """Return the largest gradient in a sequence whose tokens have all drifted, and in one where a
    single token has; all have the advantage ``sign``."""
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
    made, depends, removed = list[int](), list[bool](), False
    for node in program.nodes:
        args = [made[arg] for arg in node.args]
        reads = [arg for arg in node.args if depends[arg]]
        depends.append(node.name == "logp" if node.op == INPUT else bool(reads))
        if node.op == NUMBER:
            made.append(builder.number(node.value or 0.0))
        elif node.op == INPUT:
            made.append(builder.input(node.name or ""))
        elif node.op == "clip" and depends[node.args[0]]:
            removed = True
            made.append(args[0])
        elif node.op in ("min", "max") and len(reads) == 1:
            removed = True
            made.append(made[reads[0]])
        else:
            made.append(builder.apply(node.op, *args))
    return builder.part(made[program.output]) if removed else None
