"""A custom loss of all datums of a batch at once: their tokens one after another.

A value for each token is [M] over the tokens of all D datums, a single value [D]. Values of both
kinds meet as [M]; sums, means and extremes are taken over the tokens of each datum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import Tensor

from rlc.service.local.custom.facts import Facts, Shape, is_pointwise
from rlc.service.local.custom.graph import Graph, Node, fill


@frozen(eq=False)
class Batch:
    """How the tokens belong to the datums."""

    lengths_D: Tensor

    def spread(self, value: Any, shape: Shape | None) -> Any:
        """Return a value as one for each token."""
        single = shape in (Shape.SCALAR, Shape.LENGTH)
        return value.repeat_interleave(self.lengths_D) if single else value

    def reduce(self, how: str, value: Tensor, shape: Shape | None) -> Tensor:
        """Return the sum, mean or extreme of each datum's values."""
        if not value.is_floating_point():
            if how != "sum":
                raise TypeError("what is not floating can be summed")
            return self.reduce(how, value.double(), shape).long()
        if shape is Shape.SCALAR:
            return value
        return torch.segment_reduce(value, how, lengths=self.lengths_D, axis=0, unsafe=True)


def joined_values(
    graph: Graph, facts: Facts, inputs: Sequence[Tensor], lengths_D: Tensor
) -> list[Any]:
    """Return what the inputs and the nodes are, for a graph whose shapes datums can share. Any
    exception means that the datums must be computed one by one, which explains it."""
    batch, values, shapes = Batch(lengths_D), list[Any](inputs), facts.shapes
    for node, shape in zip(graph.nodes, shapes[len(inputs) :], strict=True):
        values.append(_run(node, shape, values, shapes, batch))
    return values


def _run(
    node: Node,
    shape: Shape | None,
    values: Sequence[Any],
    shapes: Sequence[Shape | None],
    batch: Batch,
) -> Any:
    operation = node.operation
    pointwise = is_pointwise(node)
    if shape is Shape.SIZES or (shape is Shape.LENGTH and not pointwise):
        return batch.lengths_D.double()  # its only size
    first = node.refs()[0]
    if operation.segment and not pointwise:
        return batch.reduce(operation.segment, values[first], shapes[first])
    if operation.kind == "rank" or node.args[1:] == ("ndim",):
        return 1 if shapes[first] is Shape.TOKENS else 0
    if operation.kind == "length":
        return 1  # of one value
    if pointwise and shape is Shape.TOKENS:
        given = {ref: batch.spread(values[ref], shapes[ref]) for ref in node.refs()}
    else:
        given = {ref: values[ref] for ref in node.refs()}
    kwargs = {key: fill(arg, given) for key, arg in node.kwargs.items()}
    return operation.run(*(fill(arg, given) for arg in node.args), **kwargs)
