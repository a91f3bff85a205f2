"""Programs evaluated in pure Python: rewards at run time, and losses where they are compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.program import Program, shapes
from rlc.algo.expressions.vocabulary import INPUT, NUMBER, OPERATIONS


def evaluate(program: Program, inputs: Mapping[str, float | Sequence[float]]) -> Any:
    """Return the result: a list with one value a token, or one float.

    Args:
        program: a loss, a derivative or a reward.
        inputs: for each input that is read its value, or those of the sampled tokens; ``length``
            need not be given. Nothing is checked.
    """
    values: list[Any] = []
    of = shapes(program)
    length = next((len(v) for v in inputs.values() if isinstance(v, Sequence)), 1)
    for position, node in enumerate(program.nodes):
        if node.op == NUMBER:
            values.append(node.value)
        elif node.op == INPUT:
            values.append(length if node.name == "length" else inputs[node.name or ""])
        else:
            compute = OPERATIONS[node.op].of
            given = [values[arg] for arg in node.args]
            if of[position] != "token":
                values.append(compute(*given))
            else:
                columns = [
                    value if of[arg] == "token" else [value] * length
                    for arg, value in zip(node.args, given, strict=True)
                ]
                values.append(list(map(compute, *columns)))
    return values[program.output]


def shaped_reward(program: Program, inputs: Mapping[str, float]) -> float:
    """Return the reward that a program makes of an episode.

    Raise AlgorithmError if a component that it reads is missing, or the result is not finite.
    """
    for name in program.inputs:
        if name not in inputs:
            known = ", ".join(sorted(inputs))
            raise AlgorithmError(f"the reward reads `{name}`, and the episode has {known}")
    result = float(evaluate(program, inputs))
    if not math.isfinite(result):
        read = ", ".join(f"{name} = {inputs[name]:g}" for name in program.inputs)
        raise AlgorithmError(f"the shaped reward is {result} where {read}")
    return result
