"""Programs in pure Python: what `rlc check` tries them with, and shaped rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import repeat
from typing import Any

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.inputs import OF_TOKENS
from rlc.algo.expressions.program import INPUT, NUMBER, Program, Shape
from rlc.algo.expressions.vocabulary import OPERATIONS, shapes
from rlc.records import evolve

_Inputs = Mapping[str, float | Sequence[float]]


def evaluate(program: Program, inputs: _Inputs) -> Any:
    """Return the result: a list with one value a token, or one float.

    Args:
        program: a loss, a derivative, a reward, or a preference loss, of a pair or a labelled
            reply that is a batch by itself.
        inputs: for each input that is read its value, or those of the sampled tokens; the
            ``length`` of a sequence follows from them. Nothing is checked.
    """
    return evaluator(program)(inputs)


def evaluator(
    program: Program, lists: Collection[Shape] = tuple(OF_TOKENS)
) -> Callable[[_Inputs], Any]:
    """Return :func:`evaluate` of one program, for many inputs. Values of the shapes ``lists`` are
    lists: with those of a pair and of a reply, a preference loss is computed for a batch."""
    if program.kind == "preference" and lists == tuple(OF_TOKENS):  # a mean over the batch is of it
        nodes = [evolve(n, op="stop") if n.op == "batch_mean" else n for n in program.nodes]
        program = evolve(program, nodes=tuple(nodes))
    of = shapes(program)
    # Of each operation: what computes it, what it reads, and which of that is the same on all
    # tokens where the result is not; None if the result is one value.
    steps = [
        None
        if node.op in (NUMBER, INPUT)
        else (
            OPERATIONS[node.op].of,
            node.args,
            [of[arg] not in lists for arg in node.args] if of[position] in lists else None,
        )
        for position, node in enumerate(program.nodes)
    ]

    def compute(inputs: _Inputs) -> Any:
        length = next((len(v) for v in inputs.values() if isinstance(v, (list, tuple))), 1)
        values: list[Any] = []
        for node, step in zip(program.nodes, steps, strict=True):
            if step is None:
                name = node.name or ""
                values.append(node.value if node.op == NUMBER else inputs.get(name, length))
                continue
            function, args, same = step
            if same is None:
                values.append(function(*[values[arg] for arg in args]))
            else:
                columns = [
                    repeat(values[arg]) if one else values[arg]
                    for arg, one in zip(args, same, strict=True)
                ]
                values.append(list(map(function, *columns)))
        return values[program.output]

    return compute


def shaped_reward(program: Program, inputs: Mapping[str, float]) -> float:
    """Return the reward that a program makes of an episode, which it compares with no other.

    Raise AlgorithmError if a component that it reads is missing, or the result is not finite.
    """
    read = require_inputs(program, inputs)
    return finite_reward(float(evaluate(program, read)), read)


def require_inputs(program: Program, inputs: Mapping[str, float]) -> dict[str, float]:
    """Return what a reward reads of an episode. Raise AlgorithmError if a component is missing."""
    for name in program.inputs:
        if name not in inputs:
            known = ", ".join(sorted(inputs))
            raise AlgorithmError(f"the reward reads `{name}`, and the episode has {known}")
    return {name: inputs[name] for name in program.inputs}


def finite_reward(reward: float, read: Mapping[str, float]) -> float:
    """Return a shaped reward. Raise AlgorithmError if it is not finite."""
    if not math.isfinite(reward):
        shown = ", ".join(f"{name} = {value:g}" for name, value in read.items())
        raise AlgorithmError(f"the shaped reward is {reward} where {shown}")
    return reward
