"""Where the gradient of a program goes."""

from __future__ import annotations

from rlc.algo.expressions.program import INPUT, Program
from rlc.algo.expressions.vocabulary import OPERATIONS


def differentiable(program: Program) -> list[bool]:
    """Return for each node whether it depends on ``logp`` in a way that has a gradient: not through
    ``stop`` or a condition alone."""
    found: list[bool] = []
    for node in program.nodes:
        if node.op in OPERATIONS:
            passes = node.op != "stop" and not OPERATIONS[node.op].condition
            found.append(passes and any(found[arg] for arg in node.args))
        else:
            found.append(node.op == INPUT and node.name == "logp")
    return found
