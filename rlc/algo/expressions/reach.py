"""Which nodes of a program have a gradient, and what it computes over a whole batch before any.

An operation such as ``batch_mean`` has one value for all sampled tokens of a step. It is computed
once (:func:`~rlc.algo.expressions.evaluate.batch_values`) and is then an input of the loss, as the
advantages are: what computes the loss of a sequence knows nothing of others.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlc.algo.expressions.program import INPUT, OperationNode, Program
from rlc.algo.expressions.vocabulary import OPERATIONS
from rlc.records import evolve


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


def batch_nodes(program: Program) -> dict[int, str]:
    """Return the nodes that are computed over a batch, in order, with the names of the inputs that
    they become: ``batch_mean_1``."""
    found: dict[int, str] = {}
    for position, node in enumerate(program.nodes):
        if node.op in OPERATIONS and OPERATIONS[node.op].batch is not None:
            found[position] = f"{node.op}_{len(found) + 1}"
    return found


def needs_batch(program: Program) -> bool:
    """Return whether something of a program is computed over a batch."""
    return bool(batch_nodes(program))


def reads_trainer(program: Program) -> bool:
    """Return whether what is computed over a batch reads the trainer's logprobs."""
    needed = _needed(program, batch_nodes(program))
    return any(program.nodes[position].name == "logp" for position in needed)


def after_batch(program: Program) -> Program:
    """Return the program in which the values over the batch are inputs, without what only they
    need; the program itself if there are none."""
    names = batch_nodes(program)
    if not names:
        return program
    nodes = list(program.nodes)
    for position, name in names.items():
        nodes[position] = OperationNode(INPUT, name=name)
    whole = evolve(program, nodes=tuple(nodes))
    needed = _needed(whole, [program.output])
    place = {old: new for new, old in enumerate(needed)}
    kept = (nodes[old] for old in needed)
    return evolve(
        program,
        nodes=tuple(
            OperationNode(node.op, tuple(place[arg] for arg in node.args), node.value, node.name)
            for node in kept
        ),
        output=place[program.output],
    )


def _needed(program: Program, of: Iterable[int]) -> list[int]:
    """The nodes that some of them are computed from, themselves included, in order."""
    needed, waiting = set[int](), list(of)
    while waiting:
        if (position := waiting.pop()) not in needed:
            needed.add(position)
            waiting += program.nodes[position].args
    return sorted(needed)
