"""A custom loss of one datum, operation by operation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from attrs import define
from torch import Tensor

from rlc.service.errors import ServiceError
from rlc.service.local.custom.graph import MOST_NODES, Graph, Node, fill

# How many numbers all values of a datum may hold together: for small datums this many, and for
# large ones what a graph without a larger value than its inputs can hold at most.
_LEAST_ROOM = 2**18
_LARGEST = 2**53


def values_of(graph: Graph, inputs: Sequence[Tensor]) -> list[Any]:
    """Return what the inputs and the nodes of a graph are for one datum.

    Raise ServiceError, which names the node, for an operation that is not possible with these
    inputs, or whose results would be too large.
    """
    values: list[Any] = list(inputs)
    room = _Room(max(_LEAST_ROOM, MOST_NODES * max(value.numel() for value in inputs)))
    for node in graph.nodes:
        try:
            values.append(_run(node, values, room))
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever torch raises for arguments that do not fit
            why = str(error).strip().split("\n")[0][:200] or type(error).__name__
            raise ServiceError(f"custom loss {graph.name}, {node.label}: {why}") from error
    return values


@define
class _Room:
    left: int

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError("what it computes is too large; do not pair all tokens with all")


def _run(node: Node, values: Sequence[Any], room: _Room) -> Any:
    operation = node.operation
    args = [fill(arg, values) for arg in node.args]
    kwargs = {key: fill(arg, values) for key, arg in node.kwargs.items()}
    everything = [*args, *kwargs.values()]
    tensors = [value for value in _flat(everything) if isinstance(value, Tensor)]
    if operation.kind in ("pointwise", "extreme"):
        if any(isinstance(value, (list, tuple, slice)) for value in everything):
            raise TypeError("it takes tensors and numbers")
        if not tensors:
            return _plain(node, args)
        room.take(_paired_size(tensors))
    elif operation.kind == "item":
        room.take(_items(*args) if isinstance(args[0], Tensor) else 0)
    else:
        room.take(sum(tensor.numel() for tensor in tensors))
    return operation.run(*args, **kwargs)


def _paired_size(tensors: Sequence[Tensor]) -> int:
    """How many numbers tensors have that are paired place by place."""
    shapes = [x.shape for x in tensors]
    try:
        return math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        told = " and ".join(str(list(shape)) for shape in shapes)
        raise ValueError(f"the shapes {told} do not fit together") from error


def _flat(parts: Sequence[Any]) -> list[Any]:
    return [
        leaf
        for part in parts
        for leaf in (_flat(part) if isinstance(part, (list, tuple)) else [part])
    ]


def _plain(node: Node, args: Sequence[Any]) -> Any:
    """Compute with plain numbers, such as lengths."""
    numbers = [arg for arg in args if isinstance(arg, (int, float))]
    if not node.operation.plain or len(numbers) != len(args) or node.kwargs:
        raise TypeError("it takes tensors")
    result = node.operation.run(*numbers)
    if not abs(result) <= _LARGEST:
        raise ValueError("a plain number became too large")
    return result


def _items(x: Tensor, index: Any) -> int:
    """At most how many numbers ``x[index]`` has. Raise TypeError for an index that is not simple:
    numbers, slices, None and Ellipsis, or one tensor."""
    if isinstance(index, Tensor):
        if index.dtype == torch.bool:
            return x.numel()
        return index.numel() * max(1, math.prod(x.shape[1:]))
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts):
        raise TypeError("an index has numbers and slices, or is one tensor")
    return x.numel()
