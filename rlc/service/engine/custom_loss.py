"""Custom losses as the trainer computes them: datum by datum, or for all datums at once.

For all at once, a value for each token is [M] over the tokens of all D datums, a single value [D].
Values of both kinds meet as [M]; sums, means and extremes are taken over the tokens of each datum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from attrs import frozen
from tinker import types
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

# Numbers that all values of a datum may hold together: for small datums this many, and for large
# ones as many as a graph whose values are all of the size of the largest input.
_LEAST_ROOM = 2**18
_LARGEST = 2**53


def values_of(graph: LossGraph, inputs: Sequence[Tensor]) -> list[Any]:
    """Return the values of the inputs and the nodes of a graph for one datum. Raise ServiceError,
    which names the node, for an operation that is not possible with these inputs, or whose results
    would be too large."""
    values: list[Any] = list(inputs)
    room = max(_LEAST_ROOM, MOST_NODES * max(value.numel() for value in inputs))
    for node in graph.nodes:
        try:
            args = [fill(arg, values) for arg in node.args]
            kwargs = {key: fill(arg, values) for key, arg in node.kwargs.items()}
            room -= _size(node, args, kwargs)
            if room < 0:
                raise ValueError("what it computes is too large; do not pair all tokens with all")
            result = node.operation.run(*args, **kwargs)
            if isinstance(result, (int, float)) and not abs(result) <= _LARGEST:
                raise ValueError("a plain number became too large")
            values.append(result)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # whatever torch raises for arguments that do not fit
            why = str(error).strip().split("\n")[0][:200] or type(error).__name__
            raise ServiceError(f"custom loss {graph.name}, {node.label}: {why}") from error
    return values


def _size(node: LossNode, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return a bound of how many numbers an operation computes, 0 for plain ones. Raise TypeError
    or ValueError for arguments of another kind than it takes."""
    operation = node.operation
    everything = [*args, *kwargs.values()]
    tensors = [value for value in _flat(everything) if isinstance(value, Tensor)]
    if operation.kind in ("pointwise", "extreme"):
        if any(isinstance(value, (list, tuple, slice)) for value in everything):
            raise TypeError("it takes tensors and numbers")
        if not tensors:
            are_plain = all(isinstance(arg, (int, float)) for arg in args)
            if kwargs or not (operation.plain and are_plain):
                raise TypeError("it takes tensors")
            return 0
        shapes = [x.shape for x in tensors]
        try:
            return math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            named = " and ".join(str(list(shape)) for shape in shapes)
            raise ValueError(f"the shapes {named} do not fit together") from error
    if operation.kind == "item":
        return _items(*args) if isinstance(args[0], Tensor) else 0
    return sum(tensor.numel() for tensor in tensors)


def _flat(parts: Sequence[Any]) -> list[Any]:
    return [
        leaf
        for part in parts
        for leaf in (_flat(part) if isinstance(part, (list, tuple)) else [part])
    ]


def _items(x: Tensor, index: Any) -> int:
    """Return a bound of the size of ``x[index]``. Raise TypeError for an unusual index."""
    if isinstance(index, Tensor):
        if index.dtype == torch.bool:
            return x.numel()
        return index.numel() * max(1, math.prod(x.shape[1:]))
    parts = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is ... or isinstance(part, (int, slice)) for part in parts):
        raise TypeError("an index has numbers and slices, or is one tensor")
    return x.numel()


def _reduce(how: str, value: Tensor, shape: Shape | None, lengths_D: Tensor) -> Tensor:
    if not value.is_floating_point():
        if how != "sum":
            raise TypeError("what is not floating can be summed")
        return _reduce(how, value.double(), shape, lengths_D).long()
    if shape is Shape.SCALAR:
        return value
    return torch.segment_reduce(value, how, lengths=lengths_D, axis=0, unsafe=True)


def joined_values(
    graph: LossGraph, facts: Facts, inputs: Sequence[Tensor], lengths_D: Tensor
) -> list[Any]:
    """Return the values of the inputs and the nodes of a graph whose shapes datums can share. After
    any exception the datums must be computed one by one, which explains it."""
    values, shapes = list[Any](inputs), facts.shapes
    for node, shape in zip(graph.nodes, shapes[len(inputs) :], strict=True):
        operation, pointwise, refs = node.operation, is_pointwise(node), node.refs()
        first = refs[0]
        if shape is Shape.SIZES or (shape is Shape.LENGTH and not pointwise):
            values.append(lengths_D.double())  # its only size
        elif operation.segment and not pointwise:
            values.append(_reduce(operation.segment, values[first], shapes[first], lengths_D))
        elif operation.kind == "rank" or node.args[1:] == ("ndim",):
            values.append(1 if shapes[first] is Shape.TOKENS else 0)
        elif operation.kind == "length":
            values.append(1)  # of one value
        else:
            given = {ref: values[ref] for ref in refs}
            if pointwise and shape is Shape.TOKENS:
                for ref in given:
                    if shapes[ref] in (Shape.SCALAR, Shape.LENGTH):
                        given[ref] = values[ref].repeat_interleave(lengths_D)
            kwargs = {key: fill(arg, given) for key, arg in node.kwargs.items()}
            values.append(operation.run(*(fill(arg, given) for arg in node.args), **kwargs))
    return values


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
    """A checked custom loss; see `rlc.service.interface.LossHandle`."""

    graph: LossGraph
    facts: Facts
    in_client: bool = False

    @classmethod
    def read(
        cls, name: str, inputs: Sequence[types.CustomLossInput], graph: types.CustomLossGraph
    ) -> CustomLoss:
        """Read a traced loss. Raise ServiceError for what a custom loss may not do."""
        checked = read_graph(name, inputs, graph)
        return cls(checked, facts_of(checked))

    @classmethod
    def trace(
        cls, fn: Callable[..., Any], input_ranks: Mapping[str, Literal[0, 1, 2]]
    ) -> CustomLoss:
        """Trace a function as the SDK does. Raise ServiceError if that is not possible."""
        handle = trace(fn, input_ranks)
        from tinker.lib.public_interfaces.custom_loss import encode_graph

        return cls.read(handle.name, handle.inputs, encode_graph(handle))

    @property
    def name(self) -> str:
        return self.graph.name

    def read_inputs(self, datum: types.Datum, where: str) -> dict[str, np.ndarray]:
        """Raise ServiceError for an input that is missing, of another rank, or not finite."""
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
        return all(bool(np.any(arrays[key])) for key in self.facts.zeroed_by)

    def total(
        self, lp_M: Tensor, datums: Sequence[Arrays], numbers: Sequence[int]
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the summed loss of some datums and the sums of its metrics. Raise ServiceError,
        which names a datum, if its loss cannot be computed, or it or its gradient is not finite."""
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
        finite = [bool(torch.isfinite(piece).all()) for piece in pieces]
        raise ServiceError(
            f"Datum {numbers[finite.index(False)]}: the {what} of the custom loss {self.name} is "
            "not finite; look for a logarithm, a root, a quotient or an exponential there."
        )

    def _values(
        self, leaf_M: Tensor, datums: Sequence[Arrays], numbers: Sequence[int]
    ) -> tuple[Tensor, dict[str, float]]:
        graph = self.graph
        lengths = [arrays["target_tokens"].size for arrays in datums]
        names = [name for name, _ in graph.inputs[1:]]
        per_token = [name for name, rank in graph.inputs[1:] if rank == 1]
        if self.facts.joinable and all(
            arrays[name].shape == arrays["target_tokens"].shape
            for arrays in datums
            for name in per_token
        ):
            # An error for all at once is explained by the datum that causes it.
            with suppress(Exception):
                joined = [
                    _tensor(np.concatenate([arrays[name].ravel() for arrays in datums]))
                    for name in names
                ]
                values = joined_values(graph, self.facts, [leaf_M, *joined], torch.tensor(lengths))
                sums = {key: float(values[at].detach().sum()) for key, at in graph.metrics.items()}
                return values[graph.loss], sums
        losses, metrics = [], dict.fromkeys(graph.metrics, 0.0)
        pieces = torch.split(leaf_M, lengths)
        for number, lp, arrays in zip(numbers, pieces, datums, strict=True):
            inputs = [_tensor(arrays[name]) for name in names]
            try:
                values = values_of(graph, [lp.reshape(arrays["target_tokens"].shape), *inputs])
            except ServiceError as error:
                raise ServiceError(f"Datum {number}: {error}.") from error
            for what, at in {"its loss": graph.loss, **graph.metrics}.items():
                value = values[at]
                if not isinstance(value, Tensor) or value.ndim:
                    is_tensor = isinstance(value, Tensor)
                    kind = f"of shape {list(value.shape)}" if is_tensor else "no tensor"
                    raise ServiceError(
                        f"Datum {number}: the custom loss {self.name} must return scalar tensors, "
                        f"but {what} is {kind}."
                    )
            losses.append(values[graph.loss])
            for key, at in graph.metrics.items():
                metrics[key] += float(values[at].detach())
        return torch.stack(losses), metrics


def _tensor(array: np.ndarray) -> Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(array).reshape(array.shape))
    return tensor.double() if tensor.is_floating_point() else tensor
