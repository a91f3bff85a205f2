"""A custom loss of one datum, operation by operation.

A custom loss of all datums of a batch at once: their tokens one after another.

A value for each token is [M] over the tokens of all D datums, a single value [D]. Values of both
kinds meet as [M]; sums, means and extremes are taken over the tokens of each datum.

A custom loss as the trainer computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from attrs import define, frozen
from tinker import types
from tinker.lib.public_interfaces.custom_loss import encode_graph
from torch import Tensor

from rlc.service.engine.custom_graph import (
    MOST_NODES,
    Facts,
    LossGraph,
    LossNode,
    Shape,
    facts_of,
    fill,
    is_pointwise,
    read_graph,
)
from rlc.service.engine.losses import finite_array, target_shape
from rlc.service.interface import ServiceError
from rlc.service.tracing import trace

# How many numbers all values of a datum may hold together: for small datums this many, and for
# large ones what a graph without a larger value than its inputs can hold at most.
_LEAST_ROOM = 2**18
_LARGEST = 2**53


def values_of(graph: LossGraph, inputs: Sequence[Tensor]) -> list[Any]:
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


def _run(node: LossNode, values: Sequence[Any], room: _Room) -> Any:
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


def _plain(node: LossNode, args: Sequence[Any]) -> Any:
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
    graph: LossGraph, facts: Facts, inputs: Sequence[Tensor], lengths_D: Tensor
) -> list[Any]:
    """Return what the inputs and the nodes are, for a graph whose shapes datums can share. Any
    exception means that the datums must be computed one by one, which explains it."""
    batch, values, shapes = Batch(lengths_D), list[Any](inputs), facts.shapes
    for node, shape in zip(graph.nodes, shapes[len(inputs) :], strict=True):
        values.append(_run_joined(node, shape, values, shapes, batch))
    return values


def _run_joined(
    node: LossNode,
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


Arrays = Mapping[str, np.ndarray]


class _LossGradient(torch.autograd.Function):
    """A loss whose gradient with respect to the logprobs has been computed."""

    @staticmethod
    def forward(ctx: Any, lp_M: Tensor, value: Tensor, gradient_M: Tensor) -> Tensor:  # noqa: ARG004
        ctx.save_for_backward(gradient_M)
        return value

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient_M,) = ctx.saved_tensors
        return upstream.to(gradient_M) * gradient_M, None, None


@frozen(eq=False)
class CustomLoss:
    """A checked loss of a user's own; see `rlc.service.interface.LossHandle`."""

    graph: LossGraph
    facts: Facts
    in_client: bool = False

    @classmethod
    def read(
        cls, name: str, inputs: Sequence[types.CustomLossInput], graph: types.CustomLossGraph
    ) -> CustomLoss:
        """Rebuild a traced loss. Raise ServiceError for what a custom loss may not do."""
        checked = read_graph(name, inputs, graph)
        return cls(checked, facts_of(checked))

    @classmethod
    def trace(
        cls, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> CustomLoss:
        """Trace a function as the SDK does. Raise ServiceError if that is not possible."""
        handle = trace(fn, input_ranks)
        return cls.read(handle.name, handle.inputs, encode_graph(handle))

    @property
    def name(self) -> str:
        """Its function's name."""
        return self.graph.name

    def read_inputs(self, datum: types.Datum, where: str) -> dict[str, np.ndarray]:
        """Return one datum's targets and inputs; it may have others. Raise ServiceError for an
        input that is missing, of another rank than declared, or not finite."""
        (_, rank), *inputs = self.graph.inputs
        given = datum.loss_fn_inputs
        for key in ("target_tokens", *(name for name, _ in inputs)):
            if key not in given:
                raise ServiceError(f"{where}: the custom loss {self.name} needs the input {key!r}.")
        shape = target_shape(datum, where, several=rank == 2)
        if len(shape) != rank:
            raise ServiceError(
                f"{where}: target_tokens has rank {len(shape)}, but the custom loss {self.name} "
                f"takes logprobs of rank {rank}."
            )
        arrays = {"target_tokens": finite_array(given["target_tokens"], "target_tokens", where)}
        for key, declared in inputs:
            arrays[key] = finite_array(given[key], key, where)
            if arrays[key].ndim != declared:
                raise ServiceError(
                    f"{where}: {key} has rank {arrays[key].ndim}, but the custom loss {self.name} "
                    f"declared rank {declared}."
                )
        return arrays

    def has_gradient(self, arrays: Arrays) -> bool:
        """Return whether a datum can move the weights at all."""
        return all(bool(np.any(arrays[key])) for key in self.facts.zeroed_by)

    def total(
        self, lp_M: Tensor, datums: Sequence[Arrays], numbers: Sequence[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the summed loss of some datums and the sums of its metrics.

        Raise ServiceError, which names a datum by its number, if the loss cannot be computed there,
        or if it or its gradient is not finite.
        """
        leaf_M = lp_M.detach().cpu().double().requires_grad_(lp_M.requires_grad)
        loss_D, metrics = self._values(leaf_M, datums, numbers)
        self._require_finite("loss", torch.split(loss_D.detach(), 1), numbers)
        summed = loss_D.sum()
        if not lp_M.requires_grad:
            return summed, metrics
        if not summed.requires_grad:
            raise ServiceError(f"No gradient of the custom loss {self.name} reaches logprobs.")
        (gradient_M,) = torch.autograd.grad(summed, leaf_M)
        lengths = [arrays["target_tokens"].size for arrays in datums]
        self._require_finite("gradient", torch.split(gradient_M, lengths), numbers)
        computed = _LossGradient.apply(lp_M, summed.detach(), gradient_M.to(lp_M))  # type: ignore[no-untyped-call]
        return computed, metrics

    def _require_finite(self, what: str, pieces: Sequence[Tensor], numbers: Sequence[int]) -> None:
        if torch.isfinite(torch.cat(list(pieces))).all():
            return
        worst = next(
            number
            for number, piece in zip(numbers, pieces, strict=True)
            if not torch.isfinite(piece).all()
        )
        raise ServiceError(
            f"Datum {worst}: the {what} of the custom loss {self.name} is not finite; look for "
            "a logarithm, a root, a quotient or an exponential there."
        )

    def _values(
        self, leaf_M: Tensor, datums: Sequence[Arrays], numbers: Sequence[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of each datum and the sums of the metrics."""
        graph = self.graph
        if self.facts.joinable and self._fit_tokens(datums):
            # Whatever goes wrong for all at once is explained by the datum where it does.
            with suppress(Exception):
                values = joined_values(graph, self.facts, *self._joined(leaf_M, datums))
                told = {key: float(values[at].detach().sum()) for key, at in graph.metrics.items()}
                return values[graph.loss], told
        losses, metrics = [], dict.fromkeys(graph.metrics, 0.0)
        pieces = torch.split(leaf_M, [arrays["target_tokens"].size for arrays in datums])
        for number, lp, arrays in zip(numbers, pieces, datums, strict=True):
            inputs = [_tensor(arrays[name]) for name, _ in graph.inputs[1:]]
            try:
                values = values_of(graph, [lp.reshape(arrays["target_tokens"].shape), *inputs])
            except ServiceError as error:
                raise ServiceError(f"Datum {number}: {error}.") from error
            scalars = {"its loss": graph.loss, **graph.metrics}
            for what, at in scalars.items():
                if not isinstance(values[at], Tensor) or values[at].ndim:
                    raise ServiceError(
                        f"Datum {number}: the custom loss {self.name} must return scalar tensors, "
                        f"but {what} is {_kind_of(values[at])}."
                    )
            losses.append(values[graph.loss])
            for key, at in graph.metrics.items():
                metrics[key] += float(values[at].detach())
        return torch.stack(losses), metrics

    def _fit_tokens(self, datums: Sequence[Arrays]) -> bool:
        """Whether all inputs of rank 1 have a value for each token."""
        keys = [name for name, rank in self.graph.inputs[1:] if rank == 1]
        return all(
            arrays[key].shape == arrays["target_tokens"].shape for arrays in datums for key in keys
        )

    def _joined(self, leaf_M: Tensor, datums: Sequence[Arrays]) -> tuple[list[Tensor], Tensor]:
        """Return the inputs of all datums one after another, and how many tokens each has."""
        joined = [
            _tensor(np.concatenate([arrays[name].ravel() for arrays in datums]))
            for name, _ in self.graph.inputs[1:]
        ]
        lengths = [arrays["target_tokens"].size for arrays in datums]
        return [leaf_M, *joined], torch.tensor(lengths)


def _tensor(array: np.ndarray) -> Tensor:
    """Return an array in float64, or in int64 as it is."""
    tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return tensor.double() if tensor.is_floating_point() else tensor


def _kind_of(value: Any) -> str:
    return f"of shape {list(value.shape)}" if isinstance(value, Tensor) else "no tensor"
