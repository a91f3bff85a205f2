"""A custom loss as the trainer computes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import numpy as np
import torch
from attrs import frozen
from tinker import types
from tinker.lib.public_interfaces.custom_loss import encode_graph
from torch import Tensor

from rlc.service.errors import ServiceError
from rlc.service.local.custom.facts import Facts, facts_of
from rlc.service.local.custom.graph import Graph, read_graph
from rlc.service.local.custom.joined import joined_values
from rlc.service.local.custom.per_datum import values_of
from rlc.service.local.training.losses import finite_array, target_shape
from rlc.service.tracing import trace

Arrays = Mapping[str, np.ndarray]


class _Computed(torch.autograd.Function):
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

    graph: Graph
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
        computed = _Computed.apply(lp_M, summed.detach(), gradient_M.to(lp_M))  # type: ignore[no-untyped-call]
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
