"""Where the gradient of a program goes."""

from __future__ import annotations

from rlc.algo.expressions.program import INPUT, Program
from rlc.algo.expressions.vocabulary import OPERATIONS


def differentiable(program: Program) -> list[bool]:
    """Return for each node whether it depends on ``logp`` in a way that has a gradient: not through
    ``stop``, a condition, what is computed over a batch, or a product with 0 alone."""
    found: list[bool] = []
    for node in program.nodes:
        if node.op in OPERATIONS:
            operation = OPERATIONS[node.op]
            passes = node.op != "stop" and not operation.condition and operation.batch is None
            if node.op == "*":  # by a number that is 0
                passes = all(program.nodes[arg].value != 0 for arg in node.args)
            found.append(passes and any(found[arg] for arg in node.args))
        else:
            found.append(node.op == INPUT and node.name == "logp")
    return found
