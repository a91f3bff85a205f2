"""An expression as data: a flat list of nodes, each after those that it reads.

A :class:`Program` is what a plan holds of a recipe's own loss or shaped reward. It is made by a
:class:`~rlc.algo.expressions.build.Builder` and read by everything else in this package.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen

from rlc.algo.errors import AlgorithmError
from rlc.algo.expressions.vocabulary import INPUT, NUMBER, OPERATIONS, Kind, Shape, shape_of_input
from rlc.records import Record

MOST_NODES, MOST_NESTED = 1_000, 200  # of an expression that is read, not of its derivative


class ExpressionError(AlgorithmError):
    """An expression that has no meaning.

    Attributes:
        op: the operation that it was found at, as :data:`OPERATIONS` calls it.
        argument: the position of the argument that does not fit; None: the operation itself.
        expected: what should have stood there, in words.
        found: what stands there, in words.
    """

    def __init__(
        self,
        message: str,
        op: str,
        argument: int | None = None,
        expected: str = "",
        found: str = "",
        hint: str | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.op = op
        self.argument = argument
        self.expected = expected
        self.found = found


@frozen(eq=False, repr=False)
class Node(Record):
    """One operation on the results of earlier nodes.

    ``op`` is a key of :data:`OPERATIONS`, ``number`` or ``input``; ``args`` are the positions of
    what it reads. ``value`` is that of a number. ``name`` is that of an input; of an operation, it
    is what the recipe calls the result, if it has a name there.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float | None = None
    name: str | None = None

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self.op, self.args, self.value, self.name))


@frozen(eq=False, repr=False)
class Program(Record):
    """An expression: the result of ``nodes[output]``.

    ``kind`` decides which inputs there are. ``shape``, that of the result, says how a loss adds
    up: one value for each sampled token (``token``) or one for each sequence (``sequence``).
    A shaped reward is one ``number``.
    """

    nodes: tuple[Node, ...]
    output: int
    shape: Shape
    kind: Kind = "loss"

    def __hash__(self) -> int:  # type: ignore[override]
        return hash((self.nodes, self.output, self.kind))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are read, in the order in which they stand."""
        return tuple(node.name for node in self.nodes if node.op == INPUT and node.name)


def shapes(program: Program) -> tuple[Shape, ...]:
    """Return the shape of every node."""
    found: list[Shape] = []
    for node in program.nodes:
        if node.op == NUMBER:
            found.append("number")
        elif node.op == INPUT:
            found.append(shape_of_input(program.kind, node.name or ""))
        else:
            found.append(OPERATIONS[node.op].shape([found[arg] for arg in node.args]))
    return tuple(found)


def below(program: Program, root: int) -> Iterator[int]:
    """Yield the positions of all nodes that ``root`` is made of, itself included, in order."""
    needed = {root}
    for position in range(root, -1, -1):
        if position in needed:
            needed.update(program.nodes[position].args)
    return iter(sorted(needed))
