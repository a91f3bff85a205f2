"""An expression as data: a flat list of nodes, each after those that it reads.

A :class:`Program` is the part of a plan for a recipe's own loss or shaped reward. It is made by a
:class:`~rlc.algo.expressions.build.Builder` and read by everything else in this package. Plans are
read whenever rlc starts, so this module has nothing else.
"""

from __future__ import annotations

from typing import Literal

from rlc.algo.errors import AlgorithmError
from rlc.records import Record, frozen

Shape = Literal[
    "number",
    "sequence",
    "token",
    "episode",
    "turn",
    "component",
    "turn_component",
    "turn_token",
    "pair",
    "chosen_token",
    "rejected_token",
    "reply",
    "reply_token",
]
Kind = Literal["loss", "reward", "advantage", "preference"]

NUMBER, INPUT = "number", "input"  # the leaves of an expression
MOST_NODES, MOST_NESTED = 1_000, 200  # of an expression that is read, not of its derivative


class ExpressionError(AlgorithmError):
    """An expression that has no meaning.

    Attributes:
        op: the operation that it was found at, as the vocabulary calls it.
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


@frozen(eq=False)
class OperationNode(Record):
    """One operation on the results of earlier nodes.

    ``op`` is ``number``, ``input`` or a key of
    :data:`~rlc.algo.expressions.vocabulary.OPERATIONS`; ``args`` are the positions of
    what it reads. ``value`` is that of a number. ``name`` is that of an input; of an operation, it
    is what the recipe calls the result, if it has a name there. ``over`` is what a statistic is
    taken over: ``turns`` of an episode, a scope such as ``group``, or the others of one,
    ``others(group)``.
    """

    op: str
    args: tuple[int, ...] = ()
    value: float | None = None
    name: str | None = None
    over: str | None = None

    def __hash__(self) -> int:
        return hash((self.op, self.args, self.value, self.name, self.over))


@frozen(eq=False)
class Program(Record):
    """An expression: the result of ``nodes[output]``.

    ``kind`` decides which inputs there are. ``shape``, that of the result, says how a loss adds
    up: one value for each sampled token (``token``) or one for each sequence (``sequence``).
    A shaped reward is one value for each ``episode``, an advantage one for each ``episode``,
    ``turn`` or sampled token of a turn (``turn_token``), a preference loss one for each ``pair``,
    or for each labelled ``reply``.
    """

    is_whole = True

    nodes: tuple[OperationNode, ...]
    output: int
    shape: Shape
    kind: Kind = "loss"

    def __hash__(self) -> int:
        return hash((self.nodes, self.output, self.kind))

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs that are read, in the order in which they stand."""
        return tuple(node.name for node in self.nodes if node.op == INPUT and node.name)
