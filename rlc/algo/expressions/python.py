"""Losses as Python functions of torch, as Tinker's custom losses are written.

A service traces the text, and `rlc emit` writes it into scripts: what a script computes is what a
run does. Torch multiplies its derivatives: the gradient of ``where(x > 0, log(x), 0)`` is NaN where
x is 0, because the 0 for the branch not chosen is multiplied with an infinite slope. A shielded
program has the same values and the same gradient, and computes such a branch with a harmless
argument where it is not chosen: ``where(x > 0, log(where(x > 0, x, 1)), 0)``.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from rlc.algo.expressions.build import Builder
from rlc.algo.expressions.program import INPUT, MOST_NODES, NUMBER, Program, Shape
from rlc.algo.expressions.vocabulary import (
    INPUTS,
    OPERATIONS,
    RATIO,
    after_batch,
    differentiable,
    input_of,
    shapes,
)
from rlc.records import Record, field, frozen

# Operations that can be infinite or undefined: the argument that decides it, and a harmless value.
_RISKS = {"log": (0, 1.0), "sqrt": (0, 1.0), "/": (1, 1.0), "exp": (0, 0.0)}
_Guards = tuple[tuple[int, bool], ...]  # conditions, and whether they hold


def shielded(program: Program) -> Program:
    """Return a program with the same result, whose branches are finite where not chosen."""
    if not any(node.op == "where" for node in program.nodes):
        return program
    shield = _Shield(program)
    made = shield.node(program.output, ())
    return program if shield.builder.size > MOST_NODES else shield.builder.part(made)


class _Shield:
    def __init__(self, program: Program) -> None:
        self.program, self.shapes = program, shapes(program)
        self.builder = Builder(program.kind, program.inputs, bounded=False)
        self.made: dict[tuple[int, _Guards], int] = {}
        active = differentiable(program)
        self.risky: list[bool] = []  # whether something in a node has to be shielded
        for position, node in enumerate(program.nodes):
            own = node.op in _RISKS and active[position]
            self.risky.append(own or any(self.risky[arg] for arg in node.args))

    def node(self, position: int, guards: _Guards) -> int:
        """Return the node computed only where the guards hold."""
        node = self.program.nodes[position]
        guards = guards if self.risky[position] else ()
        key = position, guards
        if key in self.made or self.builder.size > MOST_NODES:
            return self.made.get(key, 0)
        if node.op == NUMBER:
            self.made[key] = self.builder.number(node.value or 0.0)
            return self.made[key]
        if node.op == INPUT:
            self.made[key] = self.builder.input(node.name or "")
            return self.made[key]
        if node.op == "where":
            condition = self.node(node.args[0], ())
            branches = [
                self.node(arg, (*guards, (condition, holds)))
                for arg, holds in zip(node.args[1:], (True, False), strict=True)
            ]
            args = [condition, *branches]
        else:
            if OPERATIONS[node.op].reduces:  # a token's condition says nothing of the others
                guards = tuple(g for g in guards if self.builder.shape(g[0]) != "token")
            args = [self.node(arg, guards) for arg in node.args]
        if guards and node.op in _RISKS:
            place, harmless = _RISKS[node.op]
            for condition, holds in reversed(guards):
                sides = args[place], self.builder.number(harmless)
                args[place] = self.builder.apply(
                    "where", condition, *(sides if holds else reversed(sides))
                )
        self.made[key] = self.builder.apply(node.op, *args)
        if node.name is not None:
            self.builder.name(self.made[key], node.name)
        return self.made[key]


MASK, FIRST, WEIGHT = "mask", "first", "weight"
_READ = ("logq", "adv", "ref")
_RESERVED = ("torch", "logprobs", "sampled", MASK, FIRST, WEIGHT, *(set(INPUTS["loss"]) - {RATIO}))

# Tensors that are there anyway, with a value for each token, and one value.
_LIKE: Mapping[Shape, str] = {"token": "logp", "sequence": "length"}
_RATIO = "torch.exp(logp - logq)"
_LONG = 60  # characters from which a part gets a line of its own

# How tightly a text binds.
_COMPARISON, _SUM, _PRODUCT, _UNARY, _ATOM = range(5)
_LEVELS = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}


@frozen
class TorchFunction(Record):
    """A loss of one datum as Python source that needs ``torch``.

    ``ranks`` are those of its arguments, in order: the trainer's ``logprobs``, the inputs of the
    loss (``logq``, ``adv``, ``ref``), its values over the batch (``batch_top_1``), the ``mask`` of
    the sampled tokens and that of the ``first`` of them, each of shape [T] but ``batch_mean_1``,
    which is one number; then the ``weight`` of the sequence if there is one. Tokens that were not
    sampled must have the values of the first one: they count nowhere, and are computed with what is
    defined. It returns the loss and no metrics.
    """

    name: str
    source: str
    ranks: dict[str, Literal[0, 1, 2]] = field(eq=False)


def torch_function(program: Program, name: str, weighted: bool = False) -> TorchFunction:
    """Return a loss as a function called ``name``: the sum over the sampled tokens, or that of the
    sequence; with ``weighted`` times a weight that comes with the datum."""
    program = shielded(after_batch(program))
    ranks: dict[str, Literal[0, 1, 2]] = {"logprobs": 1}
    ranks |= {key: 1 for key in _READ if key in program.inputs}
    ranks |= {
        key: 0 if input_of(program.kind, key).shape == "sequence" else 1
        for key in program.inputs
        if key not in INPUTS["loss"]
    }
    ranks |= {MASK: 1, FIRST: 1}
    if weighted:
        ranks[WEIGHT] = 0
    writer = _Writer(program)
    result = writer.texts[program.output][0]
    if program.shape == "token":
        result = f"torch.where(sampled, {result}, 0.0).sum()"
    if weighted:
        result = f"{WEIGHT} * ({result})" if program.shape == "sequence" else f"{WEIGHT} * {result}"
    masked = [f"logp = torch.where(sampled, logprobs, (logprobs * {FIRST}).sum().detach())"]
    if "length" in result or any("length" in line for line in writer.lines):
        masked.append(f"length = {MASK}.sum()")
    name = name if name.isidentifier() else "loss"  # plans come from anywhere: no other code
    while keyword.iskeyword(name) or name == "torch":
        name += "_"
    lines = [f"sampled = {MASK} > 0", *masked, *writer.lines, f"return {result}, {{}}"]
    body = "".join(f"    {line}\n" for line in lines)
    return TorchFunction(name, f"def {name}({', '.join(ranks)}):\n{body}", ranks)


class _Writer:
    """Writes the nodes of a program: those with a name, or more than one reader, as lines of their
    own, before the nodes that read them."""

    def __init__(self, program: Program) -> None:
        self.program, self.shapes = program, shapes(program)
        self.lines: list[str] = []
        self.texts: list[tuple[str, int]] = []
        self.constants: dict[int, Any] = {}
        self.names = {*_RESERVED, *program.inputs}
        readers = Counter(arg for node in program.nodes for arg in node.args)
        for position, node in enumerate(program.nodes):
            text, level = self._node(position)
            known = node.op in (NUMBER, INPUT) or self.shapes[position] == "number"
            own = node.name or readers[position] > 1 or len(text) > _LONG
            if own and not known and position != program.output:
                name = self._named(node.name or ("ratio" if text == _RATIO else "u1"))
                self.lines.append(f"{name} = {text}")
                text, level = name, _ATOM
            self.texts.append((text, level))

    def _named(self, name: str) -> str:
        name = name if name.isidentifier() else "u1"
        base, count = name.rstrip("0123456789") or name, 1
        while name in self.names or keyword.iskeyword(name):
            count += 1
            name = f"{base}{count}"
        self.names.add(name)
        return name

    def enclosed(self, position: int, least: int) -> str:
        text, level = self.texts[position]
        return text if level >= least else f"({text})"

    def tensor(self, position: int, shape: Shape) -> str:
        """Return the text of a node; of a number, as a tensor of a shape."""
        text = self.texts[position][0]
        if self.shapes[position] != "number":
            return text
        ones = f"torch.ones_like({_LIKE[shape]})"
        return ones if self.constants[position] == 1 else f"{text} * {ones}"

    def widened(self, position: int, shape: Shape) -> str:
        """Return the text of a node as a tensor of just that shape: the gradient of torch's clamp
        (2.13) fails where the bounds are larger than what they bound."""
        if self.shapes[position] == "sequence" and shape == "token":
            return f"{self.enclosed(position, _SUM)} + torch.zeros_like(logp)"
        return self.tensor(position, shape)

    def _node(self, position: int) -> tuple[str, int]:
        node, shape = self.program.nodes[position], self.shapes[position]
        if node.op == INPUT:
            return node.name or "", _ATOM
        if shape == "number":  # made of numbers alone
            known = [self.constants[arg] for arg in node.args]
            made = node.value if node.op == NUMBER else OPERATIONS[node.op].of(*known)
            self.constants[position] = made
            return _number(made)
        args = node.args
        given = [self.texts[arg][0] for arg in args]
        match node.op:
            case "+" | "-" | "*" | "/" as op:
                level = _LEVELS[op]
                return (
                    f"{self.enclosed(args[0], level)} {op} {self.enclosed(args[1], level + 1)}",
                    level,
                )
            case "neg":
                return f"-{self.enclosed(args[0], _UNARY)}", _UNARY
            case "stop":
                return f"{self.enclosed(args[0], _ATOM)}.detach()", _ATOM
            case "min" | "max":
                values = ", ".join(self.tensor(arg, shape) for arg in args)
                return f"torch.{node.op}imum({values})", _ATOM
            case "clip":
                if any(self.shapes[arg] != "number" for arg in args[1:]):
                    given = [self.widened(arg, shape) for arg in args]
                return f"torch.clamp({', '.join(given)})", _ATOM
            case "where":
                if all(self.shapes[arg] == "number" for arg in args[1:]):
                    given[1] = self.tensor(args[1], shape)  # two numbers would be float32
                return f"torch.where({', '.join(given)})", _ATOM
            case "softplus":
                return f"torch.logaddexp({given[0]}, torch.zeros_like({_LIKE[shape]}))", _ATOM
            case "sum":
                return f"torch.where(sampled, {given[0]}, 0.0).sum()", _ATOM
            case "mean":
                return f"torch.where(sampled, {given[0]}, 0.0).sum() / length", _PRODUCT
        if OPERATIONS[node.op].condition:
            return " ".join(
                (self.enclosed(args[0], _SUM), node.op, self.enclosed(args[1], _SUM))
            ), 0
        return f"torch.{node.op}({given[0]})", _ATOM


def _number(value: Any) -> tuple[str, int]:
    text = repr(value)
    if text.lstrip("-") in ("inf", "nan"):
        return f'float("{text}")', _ATOM
    return text, _UNARY if value < 0 else _ATOM
